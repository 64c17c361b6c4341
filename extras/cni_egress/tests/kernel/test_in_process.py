# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin in the process of its runtime does and answers what its executable does."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_egress.records import Records
from tests.egress.guarded import Container, Network
from tests.egress.internet import HOST, Internet, internet
from tests.egress.packets import udp
from tests.kernel.namespace import made_namespace

OPEN, CLOSED = "198.51.100.17", "198.51.100.9"
STATE = (
    "nft --stateless --terse list ruleset",  # without what packets have left behind
    "nft list map inet cni-egress sources4",
    "nft list set bridge cni-egress addresses6",
    "ip rule",
    "ip -6 rule",
)


@pytest.fixture(name="outside", scope="module")
def make_outside(private_namespaces: int) -> Iterator[Internet]:
    """The internet of all tests."""
    assert private_namespaces
    with internet(OPEN, CLOSED) as made:
        yield made


@pytest.fixture(name="networks")
def make_networks(outside: Internet, tmp_path: Path) -> Iterator[tuple[Network, Network]]:
    """A guarded network, whose plugin is executed, and the same one with the plugin in this process."""
    del outside  # requested so that it is there
    executed, here = (Network(tmp_path, "agents", 1, [f"{OPEN}/32"], in_process=one) for one in (False, True))
    yield executed, here
    executed.remove()
    assert Records().all() == ()
    text = "delete table inet cni-egress; delete table bridge cni-egress"
    HOST.run(f"nft {text}")
    for family in ("-4", "-6"):
        HOST.ip(f"{family} rule delete priority 40 iif agents0")


def life(network: Network, one: Container, outside: Internet) -> list[object]:
    """What the plugin answers to each verb, and what it does, for a container that has been attached."""
    call = network.call
    previous: JsonObject = {"prevResult": one.result.converted("1.1.0").document}
    seen: list[object] = [call("DEL", "one"), call("DEL", "one"), call("CHECK", "one", previous)]
    assert Records().all() == ()
    seen += [call("ADD", "one", previous), call("CHECK", "one", previous)]
    # Without the routing rules of links of earlier tests, which GC removes.
    states = ([line for line in HOST.run(command).splitlines() if b"[detached]" not in line] for command in STATE)
    seen += [sorted(word for line in state for word in line.split()) for state in states]
    outside.arrivals()
    one.emit(*(udp(one.four, ip_address(to), 443) for to in (OPEN, CLOSED)))
    arrived = outside.arrivals()
    seen += [[any(f"> {to}:" in line for line in arrived) for to in (OPEN, CLOSED)]]
    HOST.run(f"nft delete element inet cni-egress sources4 {{ agents0 . {one.four} }}")
    seen += [call("CHECK", "one", previous), call("ADD", "one", previous), call("CHECK", "one", previous)]
    seen += [network.gc("one"), call("CHECK", "one", previous), network.gc(), call("CHECK", "one", previous)]
    seen += [call("VERSION"), call("STATUS"), call("STATUS", settings={"allow": ["a.example"]}), call("ADD", "one")]
    seen += [
        call("ADD", "one", {**previous, **wrong})
        for wrong in ({"allow": ["https://a.example"]}, {"mark": "3"}, {"cniVersion": "9.0.0"}, {"name": ""})
    ]
    return [*seen, call("CHECK", "one"), call("GC"), call("ADD", "one", previous)]


def test_both_ways(networks: tuple[Network, Network], outside: Internet) -> None:
    """All answers are the same, and so are the tables, the rules, and what leaves."""
    executed, here = networks
    with executed.container("one") as one:
        for number, (as_process, in_process) in enumerate(
            zip(life(executed, one, outside), life(here, one, outside), strict=True)
        ):
            assert (number, in_process) == (number, as_process)


def test_many_at_once(networks: tuple[Network, Network]) -> None:
    """The threads of one process serialize themselves as processes do."""
    _, here = networks
    names = [f"many{number}" for number in range(8)]

    async def run() -> None:
        adding = (here.runtime.add(here.configuration, here.attachment(name)) for name in names)
        results = await asyncio.gather(*adding)
        assert {one.container_id for one in Records().all()} == {*names}
        for name, result in zip(names, results, strict=True):
            await here.runtime.check(here.configuration, here.attachment(name), result)
        await asyncio.gather(*(here.runtime.delete(here.configuration, here.attachment(name), None) for name in names))

    with ExitStack() as stack:
        for name in names:
            stack.enter_context(made_namespace(name))
        asyncio.run(run())
