# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a lab has at one moment of everything that attachments, containers and networks may leave behind."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_object,
    get_objects,
    get_str,
    parse_json,
)
from tests.lab import docker_api
from tests.lab.errors import LabError
from tests.lab.namespaces import Namespaces
from tests.lab.programs import CNI_BIN_DIRS

_RESERVATIONS: Final = "/var/lib/cni/networks"
# Ours (staging, pins), and where plugins keep a container's old settings (tuning).
_RUN_DIRS: Final = ("/run/cni-bridge/netns", "/run/cni-bridge/sandboxes", "/run/cni")
_LOOK: Final = "set -e; ip -json -details link; echo; iptables-save; echo '# ip6'; ip6tables-save"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabState:
    """The state of a lab at one moment. Each entry is a readable line, which is the same for the same item later.

    Attributes:
        namespaces: Where network namespaces are mounted below /run, without the sandboxes of running containers.
        links: Those in the lab's host namespace, e.g. `vethc0ffee (veth, master cni0)`, without `lo`.
        rules: Of iptables, one entry for each occurrence, e.g. `ip nat -A POSTROUTING …`; chains as `ip nat :NAME`.
        reservations: host-local's, e.g. `/var/lib/cni/networks/lan/10.1.0.2`.
        files: What is below our staging directory and the plugins' run-time directory.
        plugins: Running CNI plugins, as command lines.
        containers: Names; empty while dockerd does not answer, like `networks`.
        networks: Names of Docker's networks, its own three included.
    """

    namespaces: tuple[str, ...]
    links: tuple[str, ...]
    rules: tuple[str, ...]
    reservations: tuple[str, ...]
    files: tuple[str, ...]
    plugins: tuple[str, ...]
    containers: tuple[str, ...]
    networks: tuple[str, ...]


def observe(namespaces: Namespaces) -> LabState:
    """Read the state of a lab (some 20 ms)."""
    links, _, rules = namespaces.run(["sh", "-c", _LOOK]).stdout.partition("\n")
    containers = _ask_docker(namespaces, "/containers/json?all=1")
    networks = _ask_docker(namespaces, "/networks")
    return LabState(
        namespaces=tuple(sorted(_network_namespaces(namespaces) - set(_sandboxes(namespaces, containers)))),
        links=tuple(sorted(_parse_links(links))),
        rules=tuple(sorted(parse_rules(rules))),
        reservations=tuple(sorted(_find_reservations(namespaces))),
        files=tuple(sorted(path for top in _RUN_DIRS for path in _find_files(namespaces, top))),
        plugins=tuple(sorted(_running_plugins(namespaces))),
        containers=tuple(sorted(_container_name(item) for item in containers)),
        networks=tuple(sorted(get_str(item, "Name") for item in networks)),
    )


def _network_namespaces(namespaces: Namespaces) -> set[str]:
    text = Path(f"/proc/{namespaces.init_pid}/mountinfo").read_text(encoding="utf-8")
    mounts = (line.split() for line in text.splitlines() if " - nsfs " in line)
    # `ip netns` mounts /run/netns on itself, so that each of its namespaces is listed twice
    return {point for _, _, _, root, point, *_ in mounts if root.startswith("net:") and point.startswith("/run/")}


def _sandboxes(namespaces: Namespaces, containers: tuple[JsonObject, ...]) -> Iterator[str]:
    for container in containers:
        if container.get("State") == "running":
            with suppress(LabError):  # it was just removed
                found = docker_api.call(namespaces, "GET", f"/containers/{get_str(container, 'Id')}/json")
                settings = get_object(as_object(found, "the container"), "NetworkSettings")
                yield get_str(settings, "SandboxKey").removeprefix("/var")


def _parse_links(text: str) -> Iterator[str]:
    for link in get_objects({"links": parse_json(text.encode())}, "links"):
        if link.get("link_type") != "loopback":
            info = find_object(link, "linkinfo") or {}
            master = find_str(link, "master")
            kind = find_str(info, "info_kind") or "device"
            yield f"{get_str(link, 'ifname')} ({kind}{f', master {master}' if master else ''})"


def parse_rules(text: str) -> Iterator[str]:
    """Yield the chains and rules of iptables-save, without policies and counters.

    Args:
        text: Its output, then a line `# ip6`, then that of ip6tables-save.
    """
    family = table = ""
    for line in text.splitlines():
        match line[:1]:
            case "#":
                family = "ip6" if line == "# ip6" else family or "ip"
            case "*":
                table = line[1:]
            case ":":
                yield f"{family} {table} {line.split()[0]}"
            case "-":
                yield f"{family} {table} {line}"


def _find_reservations(namespaces: Namespaces) -> Iterator[str]:
    for path in _find_files(namespaces, _RESERVATIONS):
        name = Path(path).name
        if name != "lock" and not name.startswith("last_reserved_ip."):
            yield path


def _find_files(namespaces: Namespaces, top: str) -> Iterator[str]:
    for path in namespaces.path(top).rglob("*"):
        if not path.is_dir():
            yield f"/{path.relative_to(namespaces.path('/'))}"


def _running_plugins(namespaces: Namespaces) -> Iterator[str]:
    """Yield the command lines whose program, or the script that it runs, is in a directory of CNI plugins."""
    for process in namespaces.path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        if any(word.startswith(f"{directory}/") for word in words[:2] for directory in CNI_BIN_DIRS):
            yield " ".join(words).strip()


def _ask_docker(namespaces: Namespaces, target: str) -> tuple[JsonObject, ...]:
    try:
        found = docker_api.call(namespaces, "GET", target)
    except (FileNotFoundError, ConnectionError):  # dockerd does not run
        return ()
    return get_objects({target: found}, target)


def _container_name(container: JsonObject) -> str:
    names = container.get("Names")
    return str(names[0]).removeprefix("/") if isinstance(names, list) and names else get_str(container, "Id")
