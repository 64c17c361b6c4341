# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what running containers have: the host once, and each namespace once, all at the same time."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab import Lab
from tests.lab.state import parse_rules
from tests.soak.comparison import Reservation, attachments_of
from tests.soak.docker_view import DockerView
from tests.soak.holdings import INSIDE, ON_HOST, HostLinks, read_holdings, read_host
from tests.soak.lists import gateways
from tests.soak.losses import Survey
from tests.soak.model import World

_AT_ONCE: Final = 4
_RESERVATIONS: Final = "/var/lib/cni/networks"
_RULES: Final = "iptables-save; echo '# ip6'; ip6tables-save"
_ASK: Final = r"""
for port; do
    printf 'GET /name HTTP/1.0\r\n\r\n' | busybox nc -w 2 127.0.0.1 "$port" 2>/dev/null | tail -n 1 | tr -d '\n'
    echo
done
"""


class Surveyor:
    """Reads what running containers have."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def survey(self, world: World, docker: DockerView) -> Survey:
        """Return what all running containers have.

        Args:
            world: Has the networks of each container, and the port that it publishes.
            docker: Has the running containers.
        """
        reservations = tuple(self.reservations())
        targets = find_targets(world, docker, reservations)
        names = sorted(name for name, found in docker.containers.items() if found.runs and world.has_own_network(name))
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            host = threads.submit(lambda: read_host(self._lab.run("sh", "-c", ON_HOST).stdout))
            rules = threads.submit(lambda: Counter(parse_rules(self._lab.run("sh", "-c", _RULES).stdout)))
            answers = threads.submit(self._ask, {name: port for name in names if (port := world.containers[name].port)})
            insides = {
                name: threads.submit(self._look_inside, docker.containers[name].process, targets.get(name, ()))
                for name in names
            }
            links: HostLinks = host.result()
            printed = {name: inside.result() for name, inside in insides.items()}
        return Survey(
            holdings={name: read_holdings(text, links) for name, text in printed.items() if text is not None},
            rules=rules.result(),
            host_links=frozenset(links.names.values()),
            reservations=reservations,
            answers=answers.result(),
        )

    def reservations(self) -> Iterator[Reservation]:
        """Yield host-local's reservations."""
        top = self._lab.path(_RESERVATIONS)
        for path in top.glob("*/*"):
            if path.name != "lock" and not path.name.startswith("last_reserved_ip."):
                try:
                    endpoint = path.read_text(encoding="utf-8").split()[0]
                except FileNotFoundError:  # it was just removed
                    continue
                except IndexError:
                    endpoint = ""
                yield Reservation(list=path.parent.name, address=path.name, endpoint=endpoint)

    def _look_inside(self, process: int, targets: tuple[str, ...]) -> str | None:
        inside = ("nsenter", f"--target={process}", "--net", "sh", "-c", INSIDE, "inside", *targets)
        done = self._lab.run(*inside, check=False)
        return done.stdout if done.returncode == 0 else None  # the container has just ended

    def _ask(self, ports: dict[str, int]) -> dict[str, str]:
        if not ports:
            return {}
        done = self._lab.run("sh", "-c", _ASK, "ask", *map(str, ports.values()), check=False)
        return dict(zip(ports, done.stdout.splitlines(), strict=True))


def find_targets(world: World, docker: DockerView, reservations: tuple[Reservation, ...]) -> dict[str, tuple[str, ...]]:
    """Return what each running container must reach: its gateways, and the next container of each list.

    Returns:
        Pairs, as for `INSIDE`: the container's own address, and one that must answer.
    """
    members: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, found in sorted(docker.containers.items()):
        if found.runs and name in world.containers:
            for attachment in attachments_of(world, name, found, reservations):
                members.setdefault(attachment.list, {})[name] = tuple(map(str, attachment.addresses))
    targets: dict[str, tuple[str, ...]] = {}
    for list_name, addresses in members.items():
        names = list(addresses)
        for name, following in zip(names, [*names[1:], names[0]], strict=True):
            others = addresses[following] if following != name else ()
            pairs = (
                f"{own},{other}"
                for own in addresses[name]
                for other in (*gateways(list_name), *others)
                if (":" in own) == (":" in other)
            )
            targets[name] = (*targets.get(name, ()), *pairs)
    return targets
