# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The nftables backends of newer plugins: masquerading in bridge and ptp, and port mappings.

`firewall` has none up to 1.9.1. By design the plugins leave their tables, with chains that have no container in them.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Runtime
from tests.kernel.real_plugins import (
    BRIDGE,
    CAPABILITY_ARGS,
    HOST,
    HOST_LOCAL,
    LIMITS,
    PORTMAP,
    container,
    find_plugins,
    inside,
    make_list,
)

BACKEND: JsonObject = {"ipMasqBackend": "nftables"}
LISTS: dict[str, list[JsonObject]] = {
    "bridge": [{**BRIDGE, **BACKEND, "ipam": HOST_LOCAL}],
    "bridge, portmap": [{**BRIDGE, **BACKEND, "ipam": HOST_LOCAL}, {**PORTMAP, "backend": "nftables"}],
    "ptp, portmap": [
        {"type": "ptp", "ipMasq": True, **BACKEND, "ipam": HOST_LOCAL},
        {**PORTMAP, "backend": "nftables"},
    ],
}
TABLES = ("inet cni_plugins_masquerade", "ip cni_hostport", "ip6 cni_hostport")


def rules() -> list[str]:
    """Return the lines of the plugins' tables."""
    existing = HOST.run("nft list tables").decode().splitlines()
    tables = [table for table in TABLES if f"table {table}" in existing]
    return [line.strip() for table in tables for line in HOST.run(f"nft list table {table}").decode().splitlines()]


@pytest.fixture(name="runtime")
def make_runtime(private_namespaces: int) -> Iterator[Runtime]:
    """A runtime with the newer plugins; what they leave behind by design is removed afterwards."""
    assert private_namespaces
    if shutil.which("nft") is None:
        pytest.skip("no nft; `make setup` installs it")
    yield Runtime([find_plugins("fetched").directory], LIMITS)
    HOST.run("nft flush ruleset")
    if "cni-test0" in HOST.links():
        HOST.ip("link del cni-test0")


@pytest.mark.parametrize("beside_iptables", [False, True])
@pytest.mark.parametrize("name", LISTS)
async def test_add_check_and_del(runtime: Runtime, tmp_path: Path, name: str, *, beside_iptables: bool) -> None:
    """ADD makes rules for its own container only, CHECK finds them, DEL removes them and may be repeated."""
    network = await runtime.negotiate(make_list(*LISTS[name], data_dir=tmp_path))
    if beside_iptables:
        HOST.run("iptables -t nat -A POSTROUTING -s 192.0.2.1 -j RETURN")
    with container("c1") as first, container("c2") as plain:
        kept = await runtime.add(network, first)
        before = rules()
        ports: JsonObject = {"portMappings": [{"hostPort": 8081, "containerPort": 80, "protocol": "tcp"}]}
        second = replace(plain, capability_args={**CAPABILITY_ARGS, **ports})
        result = await runtime.add(network, second)
        for address in result.addresses_of("eth0"):
            assert [line for line in rules() if str(address.ip) in line]
        await runtime.check(network, second, result)
        await runtime.delete(network, second, result)
        assert rules() == before
        assert inside(second).links() == set()
        await runtime.delete(network, second, result)
        await runtime.delete(network, second, None)
        assert rules() == before
        await runtime.check(network, first, kept)
        await runtime.delete(network, first, kept)
    assert not [line for line in rules() if "10.99.0." in line or "fd99::" in line or "808" in line]
    reserved = {file.name for file in (tmp_path / "test").iterdir()}
    assert not [file for file in reserved if file.startswith(("10.", "fd"))]
