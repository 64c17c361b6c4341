# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One test's configurations, networks and containers on a lab, which are removed when the test ends.

The guard checks afterwards that everything is gone, down to the last rule.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, Self

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode
from tests.lab import CommandFailed, Container, Lab, LabError
from tests.system.calls import wait_torn_down

PREV_RESULT: Final = "import json, sys; print(json.dumps(json.load(sys.stdin)['prevResult']))"
"""A program in Python that returns the result of the previous plugin, as a chained plugin must."""

PASS: Final = """python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin).get("prevResult")))'"""
"""The end of a plugin in shell that changes nothing; what it prints at DEL is ignored."""

_numbers: Final = itertools.count(1)
_subnets: Final = itertools.cycle(range(1, 255))  # the guard has checked that former users left nothing


CONFIGURATIONS: Final = "/etc/cni/net.d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """Addresses and names that nothing else uses, derived from `number`."""

    number: int

    @property
    def ipv4(self) -> str:
        """E.g. `10.80.1.0/24`."""
        return f"10.80.{self.number}.0/24"

    @property
    def ipv6(self) -> str:
        """E.g. `fd80:1::/64`."""
        return f"fd80:{self.number}::/64"

    @property
    def gateway(self) -> str:
        """E.g. `10.80.1.1`."""
        return f"10.80.{self.number}.1"

    @property
    def gateway_ipv6(self) -> str:
        """E.g. `fd80:1::1`."""
        return f"fd80:{self.number}::1"

    @property
    def bridge(self) -> str:
        """E.g. `cni-t1`."""
        return f"cni-t{self.number}"


def _ipam(subnet: Subnet, *, ipv6: bool) -> JsonObject:
    ranges = [[{"subnet": subnet.ipv4}], *([[{"subnet": subnet.ipv6}]] if ipv6 else [])]
    routes = [{"dst": "0.0.0.0/0"}, *([{"dst": "::/0"}] if ipv6 else [])]
    return {"type": "host-local", "ranges": ranges, "routes": routes}


def bridge(subnet: Subnet, *, ipv6: bool = False) -> Sequence[JsonObject]:
    """A bridge with gateway and masquerading; `firewall` allows its traffic despite Docker's FORWARD policy."""
    main: JsonObject = {
        "type": "bridge",
        "bridge": subnet.bridge,
        "isGateway": True,
        "ipMasq": True,
        "ipam": _ipam(subnet, ipv6=ipv6),
    }
    return main, {"type": "firewall"}


def ptp(subnet: Subnet, *, ipv6: bool = False) -> Sequence[JsonObject]:
    """A point-to-point link to the host for each container."""
    return {"type": "ptp", "ipMasq": True, "ipam": _ipam(subnet, ipv6=ipv6)}, {"type": "firewall"}


def macvlan(subnet: Subnet, *, ipv6: bool = False) -> Sequence[JsonObject]:
    """A macvlan on `Scene.uplink`."""
    return ({"type": "macvlan", "master": Scene.UPLINK, "mode": "bridge", "ipam": _ipam(subnet, ipv6=ipv6)},)


LISTS: Final[dict[str, Callable[[Subnet], Sequence[JsonObject]]]] = {
    "bridge": bridge,
    "bridge dual stack": partial(bridge, ipv6=True),
    "ptp": ptp,
    "ptp dual stack": partial(ptp, ipv6=True),
    "macvlan": macvlan,
    "macvlan dual stack": partial(macvlan, ipv6=True),
}


class Scene:
    """The configurations, networks and containers of one test."""

    UPLINK: Final = "uplink0"
    """A link of the lab's host namespace without a peer host, for lists that need a master."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._files: list[str] = []
        self._networks: list[str] = []
        self._containers: list[str] = []

    def __enter__(self) -> Self:
        self.lab.run("ip", "link", "add", self.UPLINK, "type", "veth", "peer", "name", f"{self.UPLINK}-end")
        self.lab.run("ip", "link", "set", self.UPLINK, "up")
        self.lab.run("ip", "link", "set", f"{self.UPLINK}-end", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in self._containers:
            self.lab.remove_container(name)
        for name in self._networks:
            self.lab.remove_network(name)
        with suppress(OSError, HTTPException, LabError):  # the guard reports what is left
            wait_torn_down(self.lab)  # plugins may be among the files
        for file in self._files:
            self.lab.remove(file)
        self.lab.run("ip", "link", "del", self.UPLINK)

    def subnet(self) -> Subnet:
        """Return addresses that nothing else uses."""
        return Subnet(number=next(_subnets))

    def configure(self, plugins: Sequence[JsonObject], name: str | None = None, *, cni_version: str = "1.0.0") -> str:
        """Put a network configuration list on the host; return its name."""
        name = name or f"list{next(_numbers)}"
        self.file(f"{name}.conflist", {"cniVersion": cni_version, "name": name, "plugins": list(plugins)})
        return name

    def file(self, name: str, content: str | JsonObject) -> str:
        """Put a file into the configuration directory; return its path."""
        path = f"{CONFIGURATIONS}/{name}"
        self._files.append(path)
        self.lab.write(path, content)
        return path

    def plugin(self, name: str, script: str, *, supports: Sequence[str] = ("0.4.0", "1.0.0")) -> None:
        """Put a shell plugin into the first plugin directory; it answers VERSION before its script runs."""
        answer = json.dumps({"cniVersion": "1.0.0", "supportedVersions": list(supports)})
        version = f"""[ "$CNI_COMMAND" = VERSION ] && {{ echo '{answer}'; exit 0; }}"""
        path = f"/opt/cni/bin/{name}"
        self._files.append(path)
        self.lab.write(path, f"#!/bin/sh\n{version}\n{script}\n", mode=0o755)

    def network(
        self, configuration: str | None, *options: str, name: str | None = None, mode: str | None = None
    ) -> str:
        """Make a Docker network, bound to `configuration` or, without one, by its own name.

        Args:
            configuration: The name of the list.
            options: For `docker network create`.
            name: The name of the network; by default a new one.
            mode: How containers are attached: a value of `AttachMode`, whatever the list allows.
        """
        name = name or f"net{next(_numbers)}"
        if mode is not None:
            options = (*options, "-o", f"cni.attach={AttachMode(mode).shown}")
        if mode == AttachMode.DIRECT:
            self._hide_addresses(configuration or name)
        binding = ("-o", f"cni.network={configuration}") if configuration else ()
        self._networks.append(name)
        self.lab.docker("network", "create", "-d", "cni-bridge", "--ipam-driver", "null", *binding, *options, name)
        return name

    def _hide_addresses(self, configuration: str) -> None:
        """Change a list so that Docker cannot learn its addresses in advance: another plugin has an IPAM section, too.

        `tuning` does not use it, and changes nothing here.
        """
        path = f"{CONFIGURATIONS}/{configuration}.conflist"
        document = json.loads(self.lab.read(path))
        aside = {"type": "tuning", "ipam": {"type": "static"}}
        if document["plugins"][-1] != aside:
            document["plugins"].append(aside)
            self.lab.write(path, document)

    def adopt_network(self, name: str) -> None:
        """Remove a network at the end that the test makes itself."""
        self._networks.append(name)

    def adopt_file(self, path: str) -> None:
        """Remove a file at the end that the test makes itself."""
        self._files.append(path)

    def docker_network(self, configuration: str, *options: str) -> str:
        """Make a Docker network whose addresses Docker's own IPAM chooses."""
        name = f"net{next(_numbers)}"
        self._networks.append(name)
        self.lab.docker("network", "create", "-d", "cni-bridge", "-o", f"cni.network={configuration}", *options, name)
        return name

    def builtin_network(self, *options: str, name: str | None = None) -> str:
        """Make a network of Docker's own bridge driver."""
        name = name or f"builtin{next(_numbers)}"
        self._networks.append(name)
        self.lab.docker("network", "create", *options, name)
        return name

    def bridge_network(self, *, ipv6: bool = False) -> tuple[str, Subnet]:
        """Make a network on a bridge of its own; return its name and addresses."""
        subnet = self.subnet()
        return self.network(self.configure(bridge(subnet, ipv6=ipv6))), subnet

    def run(self, network: str, *options: str) -> Container:
        """Start a container that sleeps."""
        name = f"box{next(_numbers)}"
        self._containers.append(name)
        self.lab.docker("run", "-d", "--name", name, "--net", network, *options, "busybox", "sleep", "3600")
        return self.lab.container(name)

    def create(self, network: str, *options: str) -> str:
        """Make a container without starting it; return its name."""
        name = f"box{next(_numbers)}"
        self._containers.append(name)
        self.lab.docker("create", "--name", name, "--net", network, *options, "busybox", "sleep", "3600")
        return name

    def shell(self, script: str) -> str:
        """Run a block of a document, and return what it prints; it ends at the first command that fails.

        Networks, containers and configurations that it makes are removed at the end.

        Raises:
            CommandFailed: One of its commands failed; what those before it made is removed at the end, too.
        """
        networks, containers, files = self._names()
        commands = f"PATH={Path(sys.executable).parent}:$PATH\n{script}"
        try:
            return self.lab.run("sh", "-e", "-c", commands).stdout
        finally:
            networks_after, containers_after, files_after = self._names()
            self._networks += sorted(networks_after - networks)
            self._containers += sorted(containers_after - containers)
            self._files += sorted(files_after - files)

    def _names(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return the names of the networks, containers and configuration files that there are."""
        networks = self.lab.docker("network", "ls", "--format", "{{.Name}}").split()
        containers = self.lab.docker("ps", "-a", "--format", "{{.Names}}").split()
        files = self.lab.run("find", CONFIGURATIONS, "-type", "f", check=False).stdout.splitlines()
        return frozenset(networks), frozenset(containers), frozenset(files)

    def refusal(self, *command: str) -> str:
        """Run a docker command that must fail; return its error."""
        done = self.lab.run("docker", *command, check=False)
        assert done.returncode != 0, f"docker {' '.join(command)} did not fail"
        return " ".join(done.stderr.split())

    def creation_refusal(self, *options: str) -> str:
        """Run `docker network create`, which must fail and make no network; return its error."""
        name = f"refused{next(_numbers)}"
        before = self.lab.docker("network", "ls", "-q")
        error = self.refusal("network", "create", "-d", "cni-bridge", *options, name)
        assert self.lab.docker("network", "ls", "-q") == before
        return error

    def run_refusal(self, network: str, *options: str) -> str:
        """Run `docker run`, which must fail, and remove the container that Docker made; return the error."""
        name = f"refused{next(_numbers)}"
        self._containers.append(name)
        error = self.refusal("run", "--name", name, "--net", network, *options, "busybox", "true")
        self.lab.docker("rm", name)
        return error


def rules_of(lab: Lab, address: str) -> list[str]:
    """Return the rules that allow the address to send and receive."""
    rules = lab.run("iptables", "-t", "filter", "-S").stdout.splitlines()
    return sorted(rule for rule in rules if f"{address}/32" in rule)


def reaches(container: Container, address: str, *, seconds: int = 5) -> bool:
    """Return whether `address` answers a ping of the container within some seconds."""
    try:
        container.exec("ping", "-c", "1", "-w", str(seconds), address)
    except CommandFailed:
        return False
    return True


def wait_logged(lab: Lab, event: str, timeout_s: float = 30) -> str:
    """Wait for a line of the daemon's log that contains `event`, and return it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert lab.daemon is not None
        for line in lab.daemon.log().splitlines():
            if event in line:
                return line
        time.sleep(0.1)
    raise AssertionError(f"the daemon did not log {event}")
