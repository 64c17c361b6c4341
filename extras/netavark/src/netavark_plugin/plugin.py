# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The commands that netavark calls, and `gc`.

Podman is the authority on which containers exist; the cache knows what the plugins have made for them. A kill at any
moment leaves a record in the cache, because it is written before the first plugin runs. So a set-up first deletes
what it finds of the same interface, and of containers whose namespace is gone.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from cni_invoker import (
    CniError,
    ConfigurationDirectories,
    NetworkConfigurationList,
    Runtime,
    __version__,
    run_preflight,
)
from cni_invoker.errors import ConfigurationNotFound
from cni_tool import CachedAttachment, CachedRuntime
from netavark_plugin.messages import (
    CALLER,
    Container,
    Document,
    NotUnderstood,
    Refused,
    Settings,
    create_network,
    render_status,
)

__all__ = ["main"]

_API_VERSION: Final = "1.0.0"
_NETNS_ARGUMENT: Final = 2
_SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where plugins find iptables, which a user's PATH may lack."""
_LIST_CONTAINERS: Final = ("podman", "ps", "--all", "--quiet", "--no-trunc")
_STATE: Final = Path("/var/lib/cni")
_PRIVATE_STATE: Final = "CNI_NETAVARK_PRIVATE_STATE"
_MOUNT: Final = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def _open_runtime(plugin_dirs: Sequence[Path]) -> CachedRuntime:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"}
    return CachedRuntime.open(plugin_dirs, environment=environment)


def _use_private_state() -> None:
    """Execute this program anew with a user's directory as /var/lib/cni, if podman is rootless.

    Plugins, such as host-local, keep their data there too, and may not write the host's. Podman's own CNI did the same.
    """
    if not _is_rootless() or _PRIVATE_STATE in os.environ:
        return
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "cni-netavark"
    (data / _STATE.name).mkdir(mode=0o700, parents=True, exist_ok=True)
    mount = (str(data / _STATE.name), str(_STATE)) if _STATE.is_dir() else (str(data), str(_STATE.parent))
    again = (sys.executable, "-m", "netavark_plugin", *sys.argv[1:])
    inside = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", _MOUNT, "sh", *mount, *again)
    os.execvpe(inside[0], inside, {**os.environ, _PRIVATE_STATE: "1"})  # noqa: S606  # without a shell between


def _find_list(settings: Settings) -> NetworkConfigurationList:
    return ConfigurationDirectories(settings.config_dirs).index().find(settings.network)


def create(_: Sequence[str], network: Document) -> Document:
    """`podman network create`: the list must exist, and its plugins must be usable."""
    settings = Settings.of_network(network)
    found = _find_list(settings)
    if problems := asyncio.run(run_preflight(Runtime(settings.plugin_dirs), found)).all_problems:
        raise Refused(f"network {found.name} in {found.source} cannot work: {'; '.join(problems)}")
    return create_network(network, found)


def setup(arguments: Sequence[str], document: Document) -> Document:
    """Attach a container: the list's plugins run in its namespace."""
    netns, container = _netns(arguments), Container.from_document(document)
    found = _find_list(container.settings)
    runtime = _open_runtime(container.settings.plugin_dirs)
    attachment = container.attachment(found, netns)
    for cached in asyncio.run(runtime.attachments(found.name)):
        if cached.attachment.key == attachment.key:
            asyncio.run(runtime.delete_cached(cached))
    _collect(runtime, found.name)
    if warning := container.ignored(found):
        _warn(warning)
    result = asyncio.run(runtime.add(found, attachment))
    if missing := container.missing(result):
        asyncio.run(runtime.delete(found, attachment))
        raise Refused(f"the plugins of network {found.name} have ignored {missing}; see {found.source}")
    return render_status(container.ifname, result)


def teardown(arguments: Sequence[str], document: Document) -> None:
    """Detach a container, with what was stored when it was attached. What was never attached succeeds."""
    netns, container = _netns(arguments), Container.from_document(document)
    settings = container.settings
    runtime = _open_runtime(settings.plugin_dirs)
    attachment = container.attachment(None, netns)
    for cached in asyncio.run(runtime.attachments(settings.network, container_id=container.container_id)):
        if cached.attachment.key == attachment.key:
            asyncio.run(runtime.delete_cached(cached))
            return
    try:  # no record, or one that cannot be read
        found = _find_list(settings)
    except ConfigurationNotFound:
        return
    asyncio.run(runtime.delete(found, container.attachment(found, netns)))


def info(_: Sequence[str], __: Document) -> Document:
    """What `netavark` shows about the plugin."""
    return {"version": __version__, "api_version": _API_VERSION}


def gc(arguments: Sequence[str], _: Document) -> None:
    """Delete what is left of containers that podman does not have, as after a kill; for an administrator.

    Podman leaves the namespace of a set-up that was killed with it until the next boot, so podman is asked.
    """
    plugin_dirs = [Path(one) for one in arguments[1:]] or Settings.of_network({"name": ""}).plugin_dirs
    runtime = _open_runtime(plugin_dirs)
    # Before podman is asked: a container is in its database before it is set up. In the other order, one that is set up
    # in between would be deleted while it runs.
    found = asyncio.run(runtime.attachments())
    listed = subprocess.run(_LIST_CONTAINERS, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise Refused(f"{' '.join(_LIST_CONTAINERS)} has failed: {listed.stderr.strip()}")
    existing = set(listed.stdout.split())
    _delete(runtime, (cached for cached in found if cached.attachment.container_id not in existing))
    _collect(runtime, None)


def _collect(runtime: CachedRuntime, network: str | None) -> None:
    """Delete what is left of containers whose namespace is gone, as after a reboot."""
    attachments = asyncio.run(runtime.attachments(network))
    _delete(runtime, (cached for cached in attachments if not Path(cached.attachment.netns).exists()))


def _delete(runtime: CachedRuntime, attachments: Iterable[CachedAttachment]) -> None:
    for cached in attachments:
        if _is_of_podman(cached):
            try:
                asyncio.run(runtime.delete_cached(cached))
            except CniError as exc:
                _warn(f"what is left of container {cached.attachment.container_id} is not deleted: {exc}")


def _is_of_podman(cached: CachedAttachment) -> bool:
    """Return whether podman has attached it, now or with its own CNI; pods of Kubernetes have further arguments."""
    names = {key for key, _ in cached.attachment.args}
    return CALLER in names and not any(name.startswith("K8S_") for name in names - {CALLER})


_COMMANDS: Final[Mapping[str, Callable[[Sequence[str], Document], Document | None]]] = {
    "create": create,
    "setup": setup,
    "teardown": teardown,
    "info": info,
    "gc": gc,
}
_WITH_INPUT: Final = frozenset({"create", "setup", "teardown"})
_WITH_STATE: Final = frozenset({"setup", "teardown", "gc"})


def _netns(arguments: Sequence[str]) -> str:
    if len(arguments) < _NETNS_ARGUMENT:
        raise NotUnderstood(f"{arguments[0]} needs the path of a network namespace")
    return arguments[1]


def _read_input() -> Document:
    try:
        document: Any = json.load(sys.stdin)
    except ValueError as exc:
        raise NotUnderstood(f"standard input is not JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise NotUnderstood("standard input is not a JSON object")
    return document


def _warn(text: str) -> None:
    sys.stderr.write(f"cni: {text}\n")


def _explain(exc: Exception) -> str:
    text = str(exc)
    if isinstance(exc, CniError) and exc.details and exc.details not in text:
        text = f"{text}: {exc.details}"
    return text


def _is_rootless() -> bool:
    return os.geteuid() != 0 or Path("/proc/self/uid_map").read_text("ascii").split()[:2] != ["0", "0"]


def main() -> None:
    """Act as netavark's plugin: exit with status 1 and `{"error": …}` on standard output if it fails."""
    arguments = sys.argv[1:] or ["info"]
    try:
        with redirect_stdout(sys.stderr):
            command = _COMMANDS.get(arguments[0])
            if command is None:
                raise Refused(f"unknown command {arguments[0]!r}; there are {', '.join(_COMMANDS)}")
            if arguments[0] in _WITH_STATE:
                _use_private_state()
            answer = command(arguments, _read_input() if arguments[0] in _WITH_INPUT else {})
    except (CniError, Refused, OSError) as exc:
        sys.stdout.write(json.dumps({"error": _explain(exc)}))
        sys.exit(1)
    if answer is not None:
        sys.stdout.write(json.dumps(answer))
