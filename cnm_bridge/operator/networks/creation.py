# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plans a network, without changing anything, and makes what was planned."""

import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_invoker import (
    ConfigurationDirectories,
    Limits,
    NetworkConfigurationList,
    Runtime,
    installed_plugins,
    run_preflight,
)
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.engine_facts.engine import SANDBOX_AT_JOIN, EngineVersion
from cnm_bridge.core.errors import EngineRefused, EngineUnavailable, Refused
from cnm_bridge.core.lists.dhcp import daemon_socket, find_dhcp
from cnm_bridge.core.lists.guard import RESPONDER
from cnm_bridge.core.options.cni_options import CONFIGURATION, parse_options
from cnm_bridge.core.settings import AttachOption, Settings
from cnm_bridge.driver.attach.leases import find_listener
from cnm_bridge.operator.host import read_links, read_routes, write_whole
from cnm_bridge.operator.networks.collisions import PREDEFINED, HostFacts, find_collisions
from cnm_bridge.operator.networks.list_document import (
    make_list,
    render_list,
)
from cnm_bridge.operator.networks.wanted import WantedNetwork, whole_range
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

ENGINE_LIMIT_S: Final = 60.0
"""Within which the engine makes or removes a network; it calls the daemon meanwhile."""

_NO_EGRESS: Final = (
    "a guarded network needs the plugin egress and its daemon: install cni-egress, and "
    "systemctl enable --now cni-egress"
)
_NEEDS_DNS: Final = f"run containers with --dns {RESPONDER}: otherwise they are refused on a guarded network"
_ATTACH: Final = "cni.attach"
_KUBELET: Final = Path("/var/lib/kubelet")
"""Where a kubelet is, or was, its directory is."""

_MODE: Final = 0o644
_SUFFIX: Final = ".conflist"
_FURTHER: Final = "*.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNetwork:
    """A Docker network that can be made, and its list.

    Attributes:
        version: The engine's version, which decides how Docker's own addresses are switched off.
        document: The list, None if the file exists.
        name_server: The value of `--dns` that each of its containers needs; None if it needs none.
    """

    name: str
    driver: str
    options: Mapping[str, str] = field(hash=False)
    internal: bool
    version: EngineVersion
    file: Path | None = None
    document: JsonObject | None = field(default=None, hash=False)
    notes: tuple[str, ...] = ()
    name_server: str | None = None

    @property
    def configuration(self) -> str:
        """The name of its list."""
        return self.options[CONFIGURATION]

    @property
    def run_command(self) -> str:
        """The command that runs a container on it."""
        dns = "" if self.name_server is None else f" --dns {self.name_server}"
        return f"docker run{dns} --network {self.name} IMAGE"

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that do the same, for a shell."""
        flags = ["--ipv4=false"] if self.version.makes_sandbox_first else ["--ipam-driver", "null"]
        flags += ["--internal"] if self.internal else []
        options = [part for key, value in self.options.items() for part in ("-o", f"{key}={value}")]
        command = shlex.join(["docker", "network", "create", "-d", self.driver, *flags, *options, self.name])
        if self.document is None or self.file is None:
            return (command,)
        return (show_file(self.file, render_list(self.document)), command)

    @property
    def body(self) -> JsonObject:
        """The body of `POST /networks/create`."""
        addressing: JsonObject = (
            {"EnableIPv4": False} if self.version.makes_sandbox_first else {"IPAM": {"Driver": "null"}}
        )
        return {
            "Name": self.name,
            "Driver": self.driver,
            "Options": dict(self.options),
            "Internal": self.internal,
            "CheckDuplicate": True,
            **addressing,
        }


async def plan_docker_network(
    settings: Settings, name: str, configuration: str, options: Mapping[str, str], *, internal: bool
) -> PlannedNetwork:
    """Return the plan of a Docker network of an existing list.

    Raises:
        BadOption: An option is invalid.
        Refused: There is no such list, or the Docker network exists.
        EngineUnavailable: The engine does not answer.
    """
    index = ConfigurationDirectories(settings.cni_conf_dirs).index()
    try:
        found = index.find(configuration)
    except ConfigurationNotFound as exc:
        make = "" if exc.own else "; to make one, give its addresses, such as --subnet 10.22.0.0/16"
        raise Refused(f"{exc}{make}") from exc
    given = {CONFIGURATION: configuration, **options}
    parse_options(given)
    engine = Engine(settings.docker_host, ENGINE_LIMIT_S)
    version = await _version(engine)
    if name in PREDEFINED:
        raise Refused(f"Docker keeps the name {name} for a network of its own; choose another name")
    if name in (await engine.network_names()).values():
        raise Refused(f"a Docker network {name} already exists; choose another name, or docker network rm {name}")
    doubts = (await run_preflight(_runtime(settings), found)).all_warnings  # what is wrong, the daemon refuses
    return PlannedNetwork(
        name=name,
        driver=settings.driver_name,
        options=given,
        internal=internal,
        version=version,
        file=found.source,
        notes=doubts,
    )


async def plan_network(settings: Settings, wanted: WantedNetwork, options: Mapping[str, str]) -> PlannedNetwork:
    """Return the plan of a list and its Docker network.

    Raises:
        BadOption: An option is invalid.
        Refused: Something is in the way, or the host lacks what the list needs; the text says what, and what to do.
        EngineUnavailable: The engine does not answer.
        KernelError: The host's links cannot be read.
    """
    mode = {_ATTACH: AttachOption.SANDBOX.value} if wanted.has_dhcp else {}
    given = {CONFIGURATION: wanted.name, **mode, **options}
    parse_options(given)
    engine = Engine(settings.docker_host, ENGINE_LIMIT_S)
    version = await _version(engine)
    if wanted.has_dhcp and not version.makes_sandbox_first:
        raise Refused(
            f"--dhcp needs Docker Engine {SANDBOX_AT_JOIN} or newer, and this is {version}; give the LAN's --subnet, "
            "and with --range addresses that its DHCP server does not give"
        )
    file = list_path(settings.cni_conf_dirs[0], wanted.name)
    collisions = tuple(find_collisions(wanted, await _gather_host(settings, engine, wanted.name, file)))
    if collisions:
        raise Refused("\n".join(collisions))
    network = await _make_valid(wanted, settings, file)
    plugin = find_dhcp(network)
    if plugin is not None:
        await find_listener(daemon_socket(plugin))
    internal = wanted.is_isolated or (wanted.is_guarded and version.calls_before_start)
    needs_dns = wanted.is_guarded and not internal
    return PlannedNetwork(
        name=wanted.name,
        driver=settings.driver_name,
        options=given,
        internal=internal,
        version=version,
        file=file,
        document=network.document,
        notes=(*find_notes(wanted, file), *([_NEEDS_DNS] if needs_dns else [])),
        name_server=RESPONDER if needs_dns else None,
    )


async def make_network(planned: PlannedNetwork, settings: Settings) -> None:
    """Make what was planned: the list, then the Docker network.

    Raises:
        Refused: The list cannot be written; or Docker refuses the network, and the list is removed again; or Docker
            does not answer, and the list stays, because the network may exist all the same.
        EngineUnavailable: Docker does not make the network of a list that existed before.
    """
    engine = Engine(settings.docker_host, ENGINE_LIMIT_S)
    if planned.document is None or planned.file is None:
        await engine.create_network(planned.body)
        return
    write_list(planned.file, render_list(planned.document))
    try:
        await engine.create_network(planned.body)
    except EngineRefused as exc:
        planned.file.unlink(missing_ok=True)
        raise Refused(f"{exc}; {planned.file} was removed again") from exc
    except EngineUnavailable as exc:
        raise Refused(
            f"{exc}; it may have made the network all the same, so {planned.file} was kept; see docker network ls; "
            f"cni-bridge network rm --configuration {planned.configuration} removes both"
        ) from exc


def _runtime(settings: Settings) -> Runtime:
    return Runtime(settings.cni_bin_dirs, Limits(), in_process=installed_plugins())


async def _version(engine: Engine) -> EngineVersion:
    version = await engine.version()
    if version is None:
        raise Refused("the engine does not report its version; use docker network create, see docs/configuration.md")
    return version


async def _make_valid(wanted: WantedNetwork, settings: Settings, file: Path) -> NetworkConfigurationList:
    """Return the list of a network, if its plugins can be used."""
    if wanted.parent is None and shutil.which("iptables") is None:
        raise Refused(
            "the plugins of a bridge run iptables, which this host does not have: apt-get install iptables; or write a "
            "list for nftables by hand (docs/recipes.md)"
        )
    network = NetworkConfigurationList.from_document(make_list(wanted), source=file)
    found = await run_preflight(_runtime(settings), network)
    if found.all_problems:
        missing = {plugin.type for plugin in found.plugins if plugin.problems and plugin.path is None}
        hints = [_NO_EGRESS] if wanted.is_guarded and "egress" in missing else []
        raise Refused("\n".join([*found.all_problems, *hints]))
    return network


def find_notes(wanted: WantedNetwork, file: Path) -> Iterator[str]:
    """Yield what an operator should know of a network with a list in `file`."""
    if wanted.parent is not None and any(one == whole_range(one.subnet, one.gateway) for one in wanted.ranges):
        yield (
            f"containers get any address of the subnet; if others on the LAN of {wanted.parent} have some, make "
            "the network again with a --range that nothing else uses"
        )
    first = None
    with suppress(OSError):
        first = min((one.name for one in file.parent.iterdir() if one.suffix == file.suffix), default=None)
    if first is not None and file.name < first and _KUBELET.is_dir():
        yield f"{file.name} comes first in {file.parent}, and a kubelet's runtime takes the first file"


async def _gather_host(settings: Settings, engine: Engine, name: str, file: Path) -> HostFacts:
    """Return what could be in the way of a network with a new list in `file`.

    Raises:
        EngineUnavailable: The engine does not answer.
        KernelError: The host's links cannot be read.
    """
    kernel = Kernel(reply_limit_s=settings.netlink_timeout_s)
    index = ConfigurationDirectories(settings.cni_conf_dirs).index()
    same = await engine.find_network_named(name)
    return HostFacts(
        links=await read_links(kernel),
        routes=await read_routes(kernel),
        docker_networks=frozenset((await engine.network_names()).values()),
        is_network_of_list=same is not None
        and same.driver == settings.driver_name
        and same.options.get(CONFIGURATION, name) == name,
        docker_subnets=await engine.subnets(),
        lists=tuple(map(index.find, index.names)),
        paths=find_taken_paths(file),
    )


def list_path(directory: Path, name: str) -> Path:
    """Return the path of a new list."""
    return directory / f"{name}{_SUFFIX}"


def find_taken_paths(file: Path) -> frozenset[Path]:
    """Return what exists of a new list's paths: its file, and the folder from which plugins would be added to it."""
    folder = file.with_suffix("")
    taken = {file} if file.exists() or file.is_symlink() else set()
    return frozenset(taken | ({folder} if any(folder.glob(_FURTHER)) else set()))


def write_list(file: Path, text: str) -> None:
    """Write a new list, which every user may read; make its directory if it is missing.

    Raises:
        Refused: The file exists, or cannot be written; nothing is left of it.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode(), mode=_MODE, replaces=False)
    except OSError as exc:
        raise Refused(f"cannot write {file}: {exc.strerror}; nothing was changed") from exc
    except Refused as exc:
        raise Refused(f"{exc}; nothing was changed") from exc


def show_file(path: Path, text: str) -> str:
    """Return the commands that write a text with whole lines into a file, for a shell."""
    return f"mkdir -p {shlex.quote(str(path.parent))}\ncat >{shlex.quote(str(path))} <<'END'\n{text}END"
