# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a network is refused for at its creation, the plugins refuse at ADD; what is nearly that, they accept."""

from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import PluginFailed, Runtime, run_preflight
from tests.kernel.real_plugins import container, make_list

pytestmark = pytest.mark.usefixtures("host_with_uplink")

DEFAULT: Final[JsonValue] = [{"dst": "0.0.0.0/0"}]
BRIDGE: Final[JsonObject] = {"type": "bridge", "bridge": "cni-test0"}
OUTSIDE: Final = "10.98.0.1"
IN_ANOTHER: Final[JsonObject] = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.99.0.0/24", "gateway": OUTSIDE}], [{"subnet": "10.98.0.0/24"}]],
    "routes": DEFAULT,
}


def ranged(plugin: JsonObject = BRIDGE, *, routes: JsonValue = None, **one: JsonValue) -> JsonObject:
    """Return a plugin with one range of host-local."""
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24", **one}]]}
    return {**plugin, "ipam": {**ipam, **({} if routes is None else {"routes": routes})}}


def old(**ipam: JsonValue) -> JsonObject:
    """Return a plugin with a range of host-local in its old form."""
    return {**BRIDGE, "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", **ipam}}


REFUSED: Final[dict[str, tuple[JsonObject, str]]] = {
    "host bits": (ranged(subnet="10.99.0.5/24"), "the subnet is 10.99.0.0/24"),
    "host bits, old form": (old(subnet="10.99.0.5/24"), "the subnet is 10.99.0.0/24"),
    "host bits of IPv6": (ranged(subnet="fd99::5/64"), "the subnet is fd99::/64"),
    "/31": (ranged(subnet="10.99.0.0/31"), "/30 or shorter"),
    "/32": (ranged(subnet="10.99.0.0/32"), "/30 or shorter"),
    "/127": (ranged(subnet="fd99::/127"), "/126 or shorter"),
    "/33": (ranged(subnet="10.99.0.0/33"), "is not a subnet"),
    "no prefix": (ranged(subnet="10.99.0.0"), "is not a subnet"),
    "no subnet": (ranged(subnet="office"), "is not a subnet"),
    "no address": (ranged(gateway="10.99.0.256"), "\"gateway\": '10.99.0.256' is not an IP address"),
    "gateway outside": (ranged(gateway=OUTSIDE, routes=DEFAULT), "is outside of 10.99.0.0/24"),
    "gateway outside, default": (ranged({**BRIDGE, "isDefaultGateway": True}, gateway=OUTSIDE), "is outside of"),
    "gateway outside, macvlan": (
        ranged({"type": "macvlan", "master": "uplink"}, gateway=OUTSIDE, routes=DEFAULT),
        "is outside of",
    ),
    "gateway outside, ptp": (ranged({"type": "ptp"}, gateway=OUTSIDE, routes=DEFAULT), "is outside of"),
    "text for a boolean": (ranged({**BRIDGE, "isGateway": "true"}), '"isGateway" must be true or false'),
    "number for a boolean": (ranged({**BRIDGE, "ipMasq": 1}), '"ipMasq" must be true or false'),
    "text for a number": (ranged({**BRIDGE, "mtu": "1400"}), '"mtu" must be a whole number'),
    "fraction": (ranged({**BRIDGE, "mtu": 1400.5}), '"mtu" must be a whole number'),
    "boolean for a number": (ranged({**BRIDGE, "mtu": True}), '"mtu" must be a whole number'),
    "number for a text": (ranged({**BRIDGE, "bridge": 7}), '"bridge" must be a string'),
    "text for an array": (old(routes="0.0.0.0/0"), '"routes" must be an array'),
    "17 characters": (ranged({**BRIDGE, "bridge": "cni-test-01234567"}), "1 to 15 bytes"),
    "16 characters": (ranged({**BRIDGE, "bridge": "cni-test-0123456"}), "1 to 15 bytes"),
    "slash": (ranged({**BRIDGE, "bridge": "cni-test/0"}), "without slash"),
}

ACCEPTED: Final[dict[str, JsonObject]] = {
    "/30": ranged(subnet="10.99.0.0/30"),
    "/126": ranged(subnet="fd99::/126"),
    "nulls": ranged({**BRIDGE, "isGateway": None, "mtu": None}, gateway=None),
    "empty texts": ranged(gateway="", rangeStart=""),
    "gateway in IPv6's form": ranged(gateway="::ffff:10.99.0.1", routes=DEFAULT),
    "gateway outside, no route": ranged(gateway=OUTSIDE),
    "gateway outside, route with its own": ranged(gateway=OUTSIDE, routes=[{"dst": "0.0.0.0/0", "gw": "10.99.0.9"}]),
    "gateway outside, ptp without a route": ranged({"type": "ptp"}, gateway=OUTSIDE),
    "gateway in another range": {**BRIDGE, "ipam": IN_ANOTHER},
    "15 characters": ranged({**BRIDGE, "bridge": "cni-test-012345"}),
    "unknown key": ranged({**BRIDGE, "note": {"mtu": "large"}}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused(runtime: Runtime, tmp_path: Path, case: str) -> None:
    """The plugin refuses it, too; our words name the key."""
    plugin, words = REFUSED[case]
    network = make_list(plugin, data_dir=tmp_path)
    (problem, *more) = (await run_preflight(runtime, network)).all_problems
    assert words in problem
    assert more == []
    network = await runtime.negotiate(network)
    with container("c1") as attachment, pytest.raises(PluginFailed):
        await runtime.add(network, attachment)


@pytest.mark.parametrize("case", ACCEPTED)
async def test_what_is_accepted(runtime: Runtime, tmp_path: Path, case: str) -> None:
    """The plugin accepts it, too."""
    network = make_list(ACCEPTED[case], data_dir=tmp_path)
    assert (await run_preflight(runtime, network)).all_problems == ()
    network = await runtime.negotiate(network)
    with container("c1") as attachment:
        result = await runtime.add(network, attachment)
        await runtime.delete(network, attachment, result)


async def test_keys_in_another_case(runtime: Runtime, tmp_path: Path) -> None:
    """Plugins written in Go accept them, and this runtime would not see them: they are refused by name."""
    plugin = {"IPAM" if key == "ipam" else key: value for key, value in ranged().items()}
    network = make_list({**plugin, "IsGateway": True}, data_dir=tmp_path)
    assert (await run_preflight(runtime, network)).all_problems == (
        'bridge: "IPAM" must be written "ipam"',
        'bridge: "IsGateway" must be written "isGateway"',
    )


async def test_other_plugins_are_left_alone(runtime: Runtime, tmp_path: Path) -> None:
    """Only the CNI project's are known; an IPAM plugin that the plugin does not execute is not looked at."""
    unknown: JsonObject = {"type": "custom", "isGateway": "true", "IPAM": {}}
    unused: JsonObject = {"type": "firewall", "ipam": {"type": "host-local", "subnet": "10.99.0.5/24"}}
    found = (await run_preflight(runtime, make_list(unknown, unused, data_dir=tmp_path))).all_problems
    assert [one for one in found if "not found" not in one] == []
