# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An operator who removes the plugins' shared chains has the next first ADD run alone again."""

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Attachment, NetworkConfigurationList, Result, Runtime
from cni_invoker.execution.first_iptables_use import FirstIptablesUse
from cnm_bridge.system.kernel import has_chain
from tests.kernel.real_plugins import (
    BRIDGE,
    CAPABILITY_ARGS,
    FIREWALL,
    HOST,
    HOST_LOCAL,
    LIMITS,
    PORTMAP,
    container,
    find_plugins,
    make_list,
)

CHAINS = {"portmap": ("nat", "CNI-HOSTPORT-DNAT"), "firewall": ("filter", "CNI-FORWARD")}
COMMANDS = {4: "iptables", 6: "ip6tables"}
LISTS: dict[str, JsonObject] = {
    "portmap": {"type": "portmap", "capabilities": {"portMappings": True}},
    "firewall": {"type": "firewall"},
}
ADDRESSES = {4: "10.1.0.9/24", 6: "fd00::9/64"}


def run(*commands: str) -> None:
    """Run commands of a shell."""
    subprocess.run(["sh", "-euc", "\n".join(commands)], check=True)


def remove_rules() -> None:
    """Remove the rules and chains of both families."""
    for command in COMMANDS.values():
        for table in ("nat", "filter"):
            run(f"{command} -t {table} -F", f"{command} -t {table} -X")


@pytest.fixture(autouse=True)
def no_rules(private_namespaces: int) -> Iterator[None]:
    """Begin without rules, which plugins of other tests have left, and remove all rules afterwards."""
    assert private_namespaces
    remove_rules()
    yield
    remove_rules()
    if "cni-test0" in HOST.links():
        HOST.ip("link del cni-test0")


@pytest.mark.parametrize("version", [4, 6])
def test_a_chain_is_found(version: int) -> None:
    """In the table and the family that have it, while rules jump to it; without any table nothing is found."""
    for command in (COMMANDS[version], f"{COMMANDS[version]}-legacy"):
        assert not has_chain(version, "nat", "CNI-HOSTPORT-DNAT")
        run(f"{command} -t nat -N CNI-HOSTPORT-DNAT")
        assert not has_chain(version, "nat", "CNI-HOSTPORT-DNAT")  # nothing jumps to it
        run(f"{command} -t nat -A OUTPUT -j CNI-HOSTPORT-DNAT")
        assert has_chain(version, "nat", "CNI-HOSTPORT-DNAT") is not command.endswith("legacy")
        assert not has_chain(version, "nat", "CNI-HOSTPORT")
        assert not has_chain(version, "filter", "CNI-HOSTPORT-DNAT")
        assert not has_chain(10 - version, "nat", "CNI-HOSTPORT-DNAT")
        run(f"{command} -t nat -F")
        assert has_chain(version, "nat", "OUTPUT") is not command.endswith("legacy")
        assert not has_chain(version, "nat", "CNI-HOSTPORT-DNAT")
        run(f"{command} -t nat -X")
        assert not has_chain(version, "nat", "CNI-HOSTPORT-DNAT")


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("owner", ["portmap", "firewall"])
async def test_the_first_add_after_the_chains_were_removed_runs_alone(owner: str, version: int) -> None:
    """Again and again, and only that one: as long as the chains exist, all ADDs run at once."""
    uses = FirstIptablesUse(has_chain=has_chain)
    (plugin,) = NetworkConfigurationList.from_document({"name": "lan", "plugins": [LISTS[owner]]}).plugins
    result = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": ADDRESSES[version]}]})
    attachment = Attachment(
        container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": [{"hostPort": 80}]}
    )
    table, chain = CHAINS[owner]
    iptables = f"{COMMANDS[version]} -t {table}"
    running = 0
    seen: list[int] = []

    async def add() -> None:
        nonlocal running
        async with uses.serialize_first_add(plugin, attachment, result):
            running += 1
            await asyncio.sleep(0)
            if not has_chain(version, table, chain):
                run(f"{iptables} -N {chain} 2>&- || true", f"{iptables} -A OUTPUT -j {chain}")
            seen.append(running)
            await asyncio.sleep(0)
            running -= 1

    for removal in ("-F", "-X", "-X"):
        for alone in (True, False):
            seen.clear()
            await asyncio.gather(*(add() for _ in range(4)))
            assert (seen[0] == 1) is alone
            assert max(seen) == (3 if alone else 4)
        run(f"{iptables} -F", f"{iptables} {removal}")


@pytest.mark.parametrize("whose", ["machine", "fetched"])
async def test_the_chains_are_those_of_the_plugins(whose: str, tmp_path: Path) -> None:
    """They exist after the first ADD of the CNI project's own plugins, in both families, and after the last DEL."""
    runtime = Runtime([find_plugins(whose).directory], LIMITS)
    network = make_list({**BRIDGE, "ipam": HOST_LOCAL}, PORTMAP, FIREWALL, data_dir=tmp_path)
    wanted = [(version, *chain) for version in COMMANDS for chain in (*CHAINS.values(), ("nat", "POSTROUTING"))]
    assert not any(has_chain(*chain) for chain in wanted)
    network = await runtime.negotiate(network)
    with container("c1") as plain:
        attachment = replace(plain, capability_args=CAPABILITY_ARGS)
        result = await runtime.add(network, attachment)
        assert [chain for chain in wanted if not has_chain(*chain)] == []
        await runtime.delete(network, attachment, result)
    assert [chain for chain in wanted if not has_chain(*chain)] == []
