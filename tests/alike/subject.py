# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The container of a case on one side: its commands are run, and its network is looked at."""

import itertools
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, as_object, get_int, get_object, get_str, parse_json
from tests.alike.cases import Case
from tests.alike.roles import flatten, link_local, replace_values
from tests.alike.side import SERVER, Side
from tests.lab import LabError

_COMPARED: Final = ("Config", "HostConfig", "NetworkSettings")
_INSIDE: Final = str(Path(__file__).with_name("inside.py"))
_FETCH: Final = str(Path(__file__).with_name("fetch.py"))
_ENTER: Final = """
for file in hosts resolv.conf; do
    cat "/proc/$0/root/etc/$file" >"/run/lab/$file.$0" && mount --bind "/run/lab/$file.$0" "/etc/$file" || exit
    rm "/run/lab/$file.$0"
done
exec nsenter --net="/proc/$0/ns/net" --uts="/proc/$0/ns/uts" "$@"
"""
"""Runs a program in the network and the host name of a process, with its files for names; `$0` is the process ID."""
_LINK: Final = re.compile(r"link (?P<link>\S+): mac")
_ADDRESS: Final = re.compile(r"address (?P<link>\S+): (?P<address>.*)/\d+")
_HOST_LINK: Final = re.compile(r"\b(veth|cni)[0-9a-f]{7,}\b")


class Subject:
    """The container of a case.

    Args:
        side: Where it is run.
        case: Its commands.
        port: A port of the host that nothing else uses.
    """

    def __init__(self, side: Side, case: Case, port: int) -> None:
        self._side = side
        self._lab = side.lab
        self._case = case
        self._name = f"{side.name}-case-{case.name}"
        self._words = {**side.words, "name": self._name, "port": str(port)}
        self._refusal = ""

    def run(self) -> None:
        """Run the commands of the case, up to one that is refused."""
        first = ("run", "--detach", "--name={name}", f"--network={self._case.network}")
        options = shlex.split(self._case.options)
        for command in ((*first, *options, *SERVER), *map(shlex.split, self._case.then)):
            argv = [word.format_map(self._words) for word in command]
            done = self._lab.run("docker", *argv, check=False)
            if done.returncode != 0:
                self._refusal = _HOST_LINK.sub("LINK", f"docker {argv[0]}: {' '.join(done.stderr.split())}")
                return

    def remove(self) -> None:
        """Remove the container."""
        self._lab.remove_container(self._name)

    def observe(self) -> Mapping[str, str]:
        """Return what the container sees, what Docker shows of it, and who answers whom, in roles."""
        found = {"refused": self._refusal}
        document = self._inspect()
        roles = {**self._side.roles, self._words["port"]: "PORT"}
        if document:
            seen = self._look_inside(get_int(get_object(document, "State"), "Pid"))
            own = self._own_roles(seen)
            for kind in _COMPARED:
                found |= {k: _port(k, v, self._words["port"]) for k, v in flatten(document[kind], kind).items()}
            found |= seen
            roles |= {**self._ids(document), **own}
            if seen:
                found |= self._probe(own)
        links = (match["link"] for match in map(_LINK.fullmatch, found) if match)
        return {**replace_values(found, roles), "names of links": " ".join(sorted(links))}

    def _inspect(self) -> JsonObject:
        try:
            return self._lab.container(self._name).inspect()
        except LabError:
            return {}

    def _look_inside(self, pid: int) -> dict[str, str]:
        """Run `inside.py`; nothing if the container does not run."""
        if pid == 0:
            return {}
        command = (sys.executable, _INSIDE, self._name, self._side.peer, *self._case.names)
        env = {"RES_OPTIONS": "timeout:1 attempts:1"}  # the lab has no name server
        done = self._lab.run("unshare", "--mount", "sh", "-c", _ENTER, str(pid), *command, env=env)
        return {key: str(value) for key, value in as_object(parse_json(done.stdout.encode()), "inside").items()}

    def _own_roles(self, seen: Mapping[str, str]) -> dict[str, str]:
        """Return the roles of the container's own addresses, and of its links by the network that they are on."""
        roles: dict[str, str] = {}
        for key in seen:
            if (found := _ADDRESS.fullmatch(key)) and (network := self._side.network_of(found["address"])):
                address, link, mac = found["address"], found["link"], seen[f"link {found['link']}: mac"]
                family = "NET6" if ":" in address else "NET"
                who = "asked" if address in self._words.values() else "own"
                roles |= {address: f"{family}.{network}.{who}", link: f"LINK.{network}"}
                if mac not in self._case.options:
                    roles |= {mac: f"MAC.{network}", link_local(mac): f"LINK-LOCAL.{network}"}
        return roles

    def _ids(self, document: JsonObject) -> dict[str, str]:
        """Return the roles of names and IDs, and of the addresses that Docker shows, whether there are any or not."""
        settings = get_object(document, "NetworkSettings")
        container, sandbox = get_str(document, "Id"), get_str(settings, "SandboxID")
        ids = {self._name: "NAME", container: "ID", container[:12]: "SHORT-ID"}
        ids |= {sandbox: "SANDBOX", sandbox[:12]: "SANDBOX"}
        for network in get_object(settings, "Networks").values():
            endpoint = as_object(network, "endpoint")
            ids |= {get_str(endpoint, "EndpointID"): "ENDPOINT", get_str(endpoint, "NetworkID"): "NETWORK"}
            for address in (get_str(endpoint, "IPAddress"), get_str(endpoint, "GlobalIPv6Address")):
                if number := self._side.network_of(address):
                    ids[address] = f"{'NET6' if ':' in address else 'NET'}.{number}.shown"
        return ids

    def _probe(self, own: Mapping[str, str]) -> dict[str, str]:
        """Try once who answers whom; a published port only if one was asked for."""
        side, addresses = self._side, [address for address, role in own.items() if role.startswith("NET")]
        networks = {network for address in addresses if (network := side.network_of(address))}
        others = [(*side.gateways(network), *side.addresses(side.peer, network)) for network in networks]
        pings = [f"ping -c 1 -W 2 {name}" for name in (self._name, side.peer, *itertools.chain(*others))]
        urls = [_url(address, "8080") for address in addresses]
        if "{port}" in self._case.options:
            urls += [_url(address, self._words["port"]) for address in ("127.0.0.1", "::1", *side.gateways(1))]
        back = [f"ping -c 1 -W 2 {name}" for name in (self._name, *addresses)]
        script = (
            _in_container(self._name, "from the container", (*pings, f"ping -6 -c 1 -W 2 {side.peer}")),
            _in_container(side.peer, "from the peer", back),
            shlex.join((sys.executable, _FETCH, *urls)),
            "wait",
        )
        lines = self._lab.run("sh", "-c", "\n".join(script)).stdout.splitlines()
        return {key: answer for key, _, answer in (line.rpartition(" = ") for line in lines)}


def _in_container(name: str, where: str, commands: Sequence[str]) -> str:
    tries = [f"{{ {c} >/dev/null 2>&1 && echo '{where}: {c} = yes' || echo '{where}: {c} = no'; }} &" for c in commands]
    script = "\n".join((*tries, "wait"))
    return f"docker exec {name} sh -c {shlex.quote(script)} &"


def _url(address: str, port: str) -> str:
    return f"http://[{address}]:{port}/hosts" if ":" in address else f"http://{address}:{port}/hosts"


def _port(key: str, value: str, own: str) -> str:
    """Return a port that Docker has chosen as such."""
    return "CHOSEN" if key.endswith(".HostPort") and value not in ("", own) else value
