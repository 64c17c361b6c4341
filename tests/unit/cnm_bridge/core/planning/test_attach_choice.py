# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attach mode depends on the option, the list, the engine, and the plugin `static`."""

from collections.abc import Collection

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts import EngineRelease
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.planning.attach_choice import AttachChoice, AttachRequest, can_choose_mac, choose_mode
from cnm_bridge.core.settings import AttachOption

OLD, NEW = EngineRelease(27, 5), EngineRelease(28, 0)
VERSIONS = ("0.4.0", "1.0.0")
HOST_LOCAL: JsonObject = {"type": "host-local"}
BRIDGE: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL}


def network(*plugins: JsonObject, version: str = "1.0.0") -> NetworkConfigurationList:
    """Return a list of these plugins."""
    return NetworkConfigurationList.from_document({"cniVersion": version, "name": "blue", "plugins": list(plugins)})


def choose(
    *plugins: JsonObject,
    option: AttachOption = AttachOption.AUTO,
    release: EngineRelease | None = NEW,
    static_versions: Collection[str] | None = VERSIONS,
) -> AttachChoice:
    """Choose the mode for a list of these plugins."""
    return choose_mode(AttachRequest(option=option), network(*plugins), release, static_versions=static_versions)


@pytest.mark.parametrize("plugin", ["bridge", "dummy", "ipvlan", "macvlan", "ptp", "tap"])
def test_auto_prefers_hybrid(plugin: str) -> None:
    """All plugins that are known to use the reserved addresses run in the sandbox."""
    assert choose({"type": plugin, "ipam": HOST_LOCAL}, {"type": "firewall"}).mode is AttachMode.HYBRID


def test_auto_moves_while_the_release_is_not_known() -> None:
    """The engine may be an older one; with the option `hybrid`, the sandbox is looked for at Join."""
    choice = choose(BRIDGE, release=None)
    assert choice.mode is AttachMode.MOVE
    assert "was not known" in choice.reason
    assert choose(BRIDGE, release=None, option=AttachOption.HYBRID).mode is AttachMode.HYBRID


@pytest.mark.parametrize(
    ("plugins", "reason"),
    [
        ([{"type": "calico", "ipam": {"type": "calico-ipam"}}], "plugin calico is not known"),
        ([{"type": "bridge"}], "plugin bridge has no IPAM plugin"),
        ([{"type": "bridge", "ipam": {"type": "azure-ipam"}}], "IPAM plugin azure-ipam is not known"),
        ([BRIDGE, {"type": "macvlan", "ipam": HOST_LOCAL}], "plugin macvlan has an IPAM plugin as well"),
        ([{"type": "host-device", "ipam": HOST_LOCAL}], "would not learn the MAC"),
        ([{"type": "vlan", "ipam": HOST_LOCAL}], "would not learn the MAC"),
        ([BRIDGE, {"type": "istio-cni"}], "plugin istio-cni is not known to leave addresses and MAC as they are"),
        ([BRIDGE, {"type": "tuning", "mac": "02:00:00:00:00:01"}], "plugin tuning sets a MAC"),
    ],
)
def test_auto_moves_what_hybrid_cannot_do_as_well(plugins: list[JsonObject], reason: str) -> None:
    """The reason names the plugin."""
    choice = choose(*plugins)
    assert choice.mode is AttachMode.MOVE
    assert reason in choice.reason


def test_auto_moves_on_older_engines() -> None:
    """They make the sandbox after Join."""
    choice = choose(BRIDGE, release=OLD)
    assert choice.mode is AttachMode.MOVE
    assert "Docker Engine 27.5" in choice.reason


@pytest.mark.parametrize(
    ("static_versions", "reason"),
    [(None, "static is not installed"), (["0.4.0"], "does not support CNI version 1.0.0")],
)
def test_hybrid_needs_static(static_versions: Collection[str] | None, reason: str) -> None:
    """Without it `auto` moves, and `hybrid` is refused."""
    assert reason in choose(BRIDGE, static_versions=static_versions).reason
    with pytest.raises(Refused, match=reason):
        choose(BRIDGE, static_versions=static_versions, option=AttachOption.HYBRID)


@pytest.mark.parametrize("plugin", [{"type": "vrf"}, {"type": "macvlan", "ipam": {"type": "dhcp"}}])
def test_what_cannot_be_moved_is_attached_directly(plugin: JsonObject) -> None:
    """On an engine that is old or unknown it is refused, as with the option `move`."""
    assert choose(plugin).mode is AttachMode.DIRECT
    for release in (OLD, None):
        with pytest.raises(Refused, match="blue cannot be used: plugin"):
            choose(plugin, release=release)
    with pytest.raises(Refused, match="blue cannot be used: plugin"):
        choose(plugin, option=AttachOption.MOVE)


@pytest.mark.parametrize("option", [AttachOption.HYBRID, AttachOption.DIRECT])
def test_an_option_that_the_engine_cannot_do_is_refused(option: AttachOption) -> None:
    """The error names the engine, and the mode that is possible."""
    with pytest.raises(Refused, match=rf"cni.attach={option} is not possible.*Docker Engine 27.5.*move is possible"):
        choose(BRIDGE, option=option, release=OLD)


def test_hybrid_is_refused_for_a_list_that_cannot_do_it() -> None:
    """The error names the plugin, the reason, and the mode that is possible."""
    with pytest.raises(Refused, match=r"blue: IPAM plugin dhcp is not known .*; direct is possible"):
        choose({"type": "macvlan", "ipam": {"type": "dhcp"}}, option=AttachOption.HYBRID)
    with pytest.raises(Refused, match=r"blue: plugin calico is not known .*; move is possible"):
        choose({"type": "calico"}, option=AttachOption.HYBRID)


@pytest.mark.parametrize("option", [AttachOption.HYBRID, AttachOption.DIRECT, AttachOption.MOVE])
def test_a_mode_can_be_demanded(option: AttachOption) -> None:
    """Also *hybrid* for a plugin with which Docker does not learn the MAC."""
    choice = choose({"type": "vlan", "ipam": HOST_LOCAL}, option=option)
    assert (choice.mode, choice.reason) == (AttachMode(option), f"cni.attach={option}")


@pytest.mark.parametrize("option", [AttachOption.HYBRID, AttachOption.DIRECT, AttachOption.MOVE])
def test_a_mode_can_be_the_default_of_the_daemon(option: AttachOption) -> None:
    """The reason and an error name the daemon's setting, not the option of the network."""
    request = AttachRequest(option=option, is_default=True)
    plugin: JsonObject = {"type": "vlan", "ipam": HOST_LOCAL}
    reason = choose_mode(request, network(plugin), NEW, static_versions=VERSIONS).reason
    assert reason == f"the daemon's --attach={option}"
    if option is not AttachOption.MOVE:
        with pytest.raises(Refused, match=f"the daemon's --attach={option} is not possible"):
            choose_mode(request, network(plugin), OLD, static_versions=VERSIONS)


def test_the_whole_name_of_a_link_needs_the_sandbox() -> None:
    """Libnetwork chooses the number of a link that it moves."""
    wanted = network(BRIDGE)
    choice = choose_mode(
        AttachRequest(option=AttachOption.AUTO), wanted, NEW, static_versions=VERSIONS, has_ifname=True
    )
    assert choice.mode is AttachMode.HYBRID
    with pytest.raises(BadOption, match=r"ifname.*Docker Engine 27.5.*cni.ifname-prefix"):
        choose_mode(AttachRequest(option=AttachOption.AUTO), wanted, OLD, static_versions=VERSIONS, has_ifname=True)


@pytest.mark.parametrize("plugins", [[{"type": "vlan", "ipam": HOST_LOCAL}], [BRIDGE, {"type": "istio-cni"}]])
def test_auto_does_what_move_refuses(plugins: list[JsonObject]) -> None:
    """With the whole name of a link nothing is lost by mode *hybrid*, because mode *move* is not possible."""
    request = AttachRequest(option=AttachOption.AUTO)
    assert choose_mode(request, network(*plugins), NEW, static_versions=VERSIONS).mode is AttachMode.MOVE
    choice = choose_mode(request, network(*plugins), NEW, static_versions=VERSIONS, has_ifname=True)
    assert choice.mode is AttachMode.HYBRID


@pytest.mark.parametrize("plugin", sorted({"bandwidth", "firewall", "portmap", "sbr", "tuning"}))
def test_auto_knows_what_the_reference_plugins_leave_as_it_is(plugin: str) -> None:
    """They can run in the sandbox after any plugin that delegates IPAM."""
    assert choose(BRIDGE, {"type": plugin}).mode is AttachMode.HYBRID


@pytest.mark.parametrize(("plugin", "possible"), [("bridge", True), ("ipvlan", False), ("vlan", False), ("x", False)])
def test_links_whose_mac_may_be_chosen(plugin: str, *, possible: bool) -> None:
    """Others share the MAC of their parent, or are unknown."""
    assert can_choose_mac(network({"type": plugin})) is possible
