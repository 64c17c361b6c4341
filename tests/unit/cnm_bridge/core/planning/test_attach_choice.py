# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attach mode depends on the option, the list, the engine, and the plugin `static`."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, IdentityRequest
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.planning.attach_choice import AttachChoice, AttachRequest, choose_mode, depends_on_static
from cnm_bridge.core.settings import AttachOption
from tests.records import list_of

OLD, NEW = EngineVersion(27, 5), EngineVersion(28, 0)
VERSIONS = ("0.4.0", "1.0.0")
HOST_LOCAL: JsonObject = {"type": "host-local"}
BRIDGE: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL}
ACME: JsonObject = {"type": "acme", "ipam": {"type": "acme-ipam"}}
TWICE: Final[tuple[JsonObject, ...]] = (BRIDGE, ACME)
VRF: Final[tuple[JsonObject, ...]] = (BRIDGE, {"type": "vrf"})
DHCP: JsonObject = {"type": "macvlan", "ipam": {"type": "dhcp"}}
PTP: JsonObject = {"type": "ptp", "ipam": HOST_LOCAL}
NAMED, POOL = "ifname", "pool"
KNOWN = IdentityRequest()
REQUIRED = IdentityRequest(is_required=True)


def asking(
    option: AttachOption,
    need: IdentityRequest | str | None,
    *plugins: JsonObject,
    version: EngineVersion | None = NEW,
) -> AttachRequest:
    """Return a request that needs the name of the link, Docker's IPAM, an identity, or none of these."""
    identity = need if isinstance(need, IdentityRequest) else None
    options = Options(attach=option, ifname="lan7" if need == NAMED else None, identity=identity)
    return AttachRequest(
        network=list_of(*plugins),
        options=options,
        default=AttachOption.AUTO,
        version=version,
        has_pool=need == POOL,
    )


def choose(
    *plugins: JsonObject,
    option: AttachOption = AttachOption.AUTO,
    version: EngineVersion | None = NEW,
    static_versions: Collection[str] | None = VERSIONS,
    need: IdentityRequest | str | None = None,
) -> AttachChoice:
    """Choose the mode for a list of these plugins."""
    return choose_mode(asking(option, need, *plugins, version=version), static_versions)


# `auto`: move if it can do what the list and the options need, else in the sandbox

NEEDS_SANDBOX = "needs plugins that run in the sandbox"
TO_EXPLAIN = "; Docker does not know the addresses: "


@pytest.mark.parametrize("version", [OLD, NEW, None])
@pytest.mark.parametrize(
    "plugins", [[BRIDGE], [ACME], [{"type": "bridge"}], [{"type": "vlan", "ipam": HOST_LOCAL}], TWICE]
)
def test_auto_moves_whatever_can_be_moved(plugins: list[JsonObject], version: EngineVersion | None) -> None:
    """With every engine, and whether or not `static` is installed: Docker knows such a link."""
    for static_versions in (VERSIONS, None):
        choice = choose(*plugins, version=version, static_versions=static_versions)
        assert (choice.mode, choice.reason) == (AttachMode.MOVE, "Docker knows all of a link that it moves itself")


@pytest.mark.parametrize(
    ("plugins", "need", "mode", "reason"),
    [
        # a MAC that a chained plugin sets is known from the list
        ([BRIDGE, {"type": "tuning", "mac": "02:00:00:00:00:01"}], NAMED, AttachMode.HYBRID, NEEDS_SANDBOX),
        # a list that cannot be moved: hybrid, if the IPAM plugin runs by itself
        (VRF, None, AttachMode.HYBRID, "of plugin vrf: a VRF cannot be moved into the container"),
        ([{"type": "vlan", "ipam": HOST_LOCAL}, {"type": "vrf"}], None, AttachMode.HYBRID, "of plugin vrf: "),
        ([*VRF, {"type": "istio-cni"}], None, AttachMode.HYBRID, "of plugin vrf: "),
        ([DHCP], None, AttachMode.DIRECT, f"moves none{TO_EXPLAIN}IPAM plugin dhcp is not known to work without"),
        ([ACME, {"type": "vrf"}], None, AttachMode.DIRECT, f"{TO_EXPLAIN}plugin acme is not known to leave"),
        ([{"type": "weave-net"}], None, AttachMode.DIRECT, f"{TO_EXPLAIN}plugin weave-net is not known to leave"),
        ([*TWICE, {"type": "vrf"}], None, AttachMode.DIRECT, f"{TO_EXPLAIN}plugin acme has an IPAM plugin as well"),
        # the whole name of the link, which mode move refuses
        ([BRIDGE], NAMED, AttachMode.HYBRID, f"com.docker.network.endpoint.ifname {NEEDS_SANDBOX}"),
        ([BRIDGE, {"type": "istio-cni"}], NAMED, AttachMode.HYBRID, NEEDS_SANDBOX),
        ([{"type": "vlan", "ipam": HOST_LOCAL}], NAMED, AttachMode.HYBRID, NEEDS_SANDBOX),
        ([ACME], NAMED, AttachMode.DIRECT, f"{NEEDS_SANDBOX}{TO_EXPLAIN}plugin acme is not known to leave"),
        (TWICE, NAMED, AttachMode.DIRECT, f"{NEEDS_SANDBOX}{TO_EXPLAIN}plugin acme has an IPAM plugin as well"),
        (VRF, NAMED, AttachMode.HYBRID, "of plugin vrf: "),
        # addresses of Docker's IPAM, which mode move refuses for plugins that remove the route of the prefix
        ([PTP], POOL, AttachMode.HYBRID, "plugin ptp would give a moved link another prefix than Docker's IPAM"),
        ([BRIDGE, {"type": "sbr"}], POOL, AttachMode.HYBRID, "plugin sbr would give a moved link another prefix"),
        ([{"type": "ptp", "ipam": {"type": "x"}}], POOL, AttachMode.DIRECT, f"{TO_EXPLAIN}IPAM plugin x is not known"),
        ([BRIDGE], POOL, AttachMode.MOVE, "Docker knows all of a link that it moves itself"),
        ([PTP], None, AttachMode.MOVE, "Docker knows all of a link that it moves itself"),
        # an identity that is required, which mode move refuses
        ([BRIDGE], REQUIRED, AttachMode.HYBRID, f"cni.identity {NEEDS_SANDBOX}"),
        ([ACME], REQUIRED, AttachMode.DIRECT, f"{NEEDS_SANDBOX}{TO_EXPLAIN}plugin acme is not known to leave"),
        # an identity that is not: no reason to hide addresses from Docker
        ([BRIDGE], KNOWN, AttachMode.HYBRID, f"cni.identity {NEEDS_SANDBOX}"),
        ([ACME], KNOWN, AttachMode.MOVE, "plugin acme is not known to leave its addresses"),
        ([DHCP], KNOWN, AttachMode.DIRECT, "of plugin dhcp: "),
    ],
)
def test_auto_in_the_sandbox(
    plugins: list[JsonObject], need: IdentityRequest | str | None, mode: AttachMode, reason: str
) -> None:
    """From Engine 28 on *hybrid*, in which Docker knows the addresses, else *direct*; the reason says what needs it."""
    choice = choose(*plugins, need=need)
    assert choice.mode is mode
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("static_versions", "reason"),
    [(None, "is not installed"), (["0.4.0"], "does not support CNI version 1.0.0")],
)
def test_auto_without_static(static_versions: Collection[str] | None, reason: str) -> None:
    """Mode *hybrid* gives the reserved addresses to the first plugin by `static`."""
    for choice in (
        choose(*VRF, static_versions=static_versions),
        choose(BRIDGE, static_versions=static_versions, need=NAMED),
    ):
        assert choice.mode is AttachMode.DIRECT
        assert choice.reason.endswith(f"{TO_EXPLAIN}plugin static {reason}")


@pytest.mark.parametrize(
    ("plugins", "need", "error", "text"),
    [
        ([DHCP], None, Refused, r"blue cannot be used: plugin dhcp: .*; Docker Engine 27.5 makes the sandbox after"),
        (VRF, None, Refused, r"blue cannot be used: plugin vrf: .*; Docker Engine 27.5 makes the sandbox after"),
        ([BRIDGE], NAMED, BadOption, r"ifname.*Docker Engine 27.5 makes the sandbox after.*cni.ifname-prefix"),
        ([BRIDGE], REQUIRED, Refused, r"identity-required: .* because Docker Engine 27.5 .*; use Docker Engine 28 or"),
    ],
)
def test_auto_refuses_what_an_older_engine_cannot_do(
    plugins: list[JsonObject], need: IdentityRequest | str | None, error: type[Exception], text: str
) -> None:
    """The error names the plugin or the option, and the engine."""
    with pytest.raises(error, match=text):
        choose(*plugins, version=OLD, need=need)


@pytest.mark.parametrize(("plugin", "need"), [(BRIDGE, KNOWN), (PTP, POOL)])
def test_auto_moves_on_older_engines(plugin: JsonObject, need: IdentityRequest | str) -> None:
    """Plugins do not learn the identity, and the address is compared with that of Docker's IPAM."""
    choice = choose(plugin, version=OLD, need=need)
    assert choice.mode is AttachMode.MOVE
    assert "Docker Engine 27.5" in choice.reason


def test_auto_while_the_version_is_not_known() -> None:
    """In mode *hybrid* the sandbox is looked for at Join; what nothing else can do is refused."""
    assert choose(BRIDGE, version=None, need=NAMED).mode is AttachMode.HYBRID
    assert choose(BRIDGE, version=None, option=AttachOption.SANDBOX).mode is AttachMode.HYBRID
    assert choose(BRIDGE, version=None, need=REQUIRED).mode is AttachMode.HYBRID
    assert choose(ACME, version=None, need=KNOWN).reason == "the version of the Docker Engine was not known"
    with pytest.raises(Refused, match=r"blue cannot be used: plugin vrf: .*; the version of the Docker Engine was not"):
        choose(*VRF, version=None)
    with pytest.raises(BadOption, match="the version of the Docker Engine was not known"):
        choose(ACME, version=None, need=NAMED)
    with pytest.raises(Refused, match=r"choose cni.attach=sandbox, or leave out cni.identity-required"):
        choose(ACME, version=None, need=REQUIRED)


@pytest.mark.parametrize(
    ("option", "plugins", "need", "depends"),
    [
        (AttachOption.AUTO, [BRIDGE], None, False),
        (AttachOption.AUTO, VRF, None, True),
        (AttachOption.AUTO, [BRIDGE], NAMED, True),
        (AttachOption.AUTO, [PTP], POOL, True),
        (AttachOption.AUTO, [BRIDGE], POOL, False),
        (AttachOption.AUTO, [BRIDGE], KNOWN, True),
        (AttachOption.FAST, [BRIDGE], None, True),
        (AttachOption.SANDBOX, [BRIDGE], None, True),
        (AttachOption.MOVE, [BRIDGE], KNOWN, False),
        (AttachOption.MOVE, [BRIDGE], REQUIRED, False),
    ],
)
def test_static_is_asked_only_if_the_mode_depends_on_it(
    option: AttachOption, plugins: list[JsonObject], need: IdentityRequest | str | None, *, depends: bool
) -> None:
    """A container that is moved does not pay for an execution."""
    assert depends_on_static(asking(option, need, *plugins)) is depends


# `fast`: in the sandbox where Docker learns the same addresses and MAC


@pytest.mark.parametrize(
    "plugins",
    [
        *(
            [{"type": main, "ipam": HOST_LOCAL}, {"type": "firewall"}]
            for main in ("bridge", "dummy", "ipvlan", "macvlan", "ptp", "tap")
        ),
        *([BRIDGE, {"type": chained}] for chained in ("bandwidth", "firewall", "portmap", "sbr", "tuning")),
    ],
)
def test_fast_prefers_hybrid(plugins: list[JsonObject]) -> None:
    """Plugins that use the reserved addresses run in the sandbox, also before those that leave a link as it is."""
    assert choose(*plugins, option=AttachOption.FAST).mode is AttachMode.HYBRID


@pytest.mark.parametrize(
    ("plugins", "version", "reason"),
    [
        ([ACME], NEW, "plugin acme is not known"),
        ([{"type": "bridge"}], NEW, "plugin bridge has no IPAM plugin"),
        ([{"type": "bridge", "ipam": {"type": "azure-ipam"}}], NEW, "IPAM plugin azure-ipam is not known"),
        ([BRIDGE, {"type": "macvlan", "ipam": HOST_LOCAL}], NEW, "plugin macvlan has an IPAM plugin as well"),
        ([{"type": "host-device", "ipam": HOST_LOCAL}], NEW, "would not learn the MAC"),
        ([{"type": "vlan", "ipam": HOST_LOCAL}], NEW, "would not learn the MAC"),
        ([BRIDGE, {"type": "istio-cni"}], NEW, "plugin istio-cni is not known to leave addresses and MAC as they are"),
        (TWICE, NEW, "plugin acme has an IPAM plugin as well"),
        ([BRIDGE], OLD, "Docker Engine 27.5"),  # it makes the sandbox after Join
        ([BRIDGE], None, "was not known"),  # it may be an older one
    ],
)
def test_fast_moves_what_hybrid_cannot_do_as_well(
    plugins: list[JsonObject], version: EngineVersion | None, reason: str
) -> None:
    """The reason names the plugin or the engine."""
    choice = choose(*plugins, version=version, option=AttachOption.FAST)
    assert choice.mode is AttachMode.MOVE
    assert reason in choice.reason


@pytest.mark.parametrize(("plugins", "mode"), [(VRF, AttachMode.HYBRID), ([DHCP], AttachMode.DIRECT)])
def test_fast_attaches_in_the_sandbox_what_cannot_be_moved(plugins: list[JsonObject], mode: AttachMode) -> None:
    """On an engine that is old or unknown it is refused, as with the option `move`."""
    assert choose(*plugins, option=AttachOption.FAST).mode is mode
    for version in (OLD, None):
        with pytest.raises(Refused, match="blue cannot be used: plugin"):
            choose(*plugins, version=version, option=AttachOption.FAST)
    with pytest.raises(Refused, match="blue cannot be used: plugin"):
        choose(*plugins, option=AttachOption.MOVE)


# modes that are demanded


def test_an_option_that_the_engine_cannot_do_is_refused() -> None:
    """The error names the engine, and the mode that is possible."""
    with pytest.raises(Refused, match=r"cni.attach=sandbox is not possible.*Docker Engine 27.5.*move is possible"):
        choose(BRIDGE, option=AttachOption.SANDBOX, version=OLD)


@pytest.mark.parametrize(
    ("plugins", "need"), [(VRF, None), ([DHCP], None), ([BRIDGE], NAMED), ([BRIDGE], REQUIRED), ([PTP], POOL)]
)
def test_an_older_engine_is_the_only_obstacle(plugins: list[JsonObject], need: IdentityRequest | str | None) -> None:
    """If mode *move* is not possible either, the error names no mode of this engine."""
    with pytest.raises(Refused, match=r"Docker Engine 27.5 .*; use Docker Engine 28 or newer$"):
        choose(*plugins, option=AttachOption.SANDBOX, version=OLD, need=need)
    assert choose(*plugins, option=AttachOption.SANDBOX, need=need).mode.in_sandbox


@pytest.mark.parametrize(
    ("plugins", "mode", "reason"),
    [
        ([BRIDGE], AttachMode.HYBRID, ""),
        ([{"type": "vlan", "ipam": HOST_LOCAL}], AttachMode.HYBRID, ""),  # Docker does not learn the MAC
        ([DHCP], AttachMode.DIRECT, f"{TO_EXPLAIN}IPAM plugin dhcp is not known to work without a link"),
        ([ACME], AttachMode.DIRECT, f"{TO_EXPLAIN}plugin acme is not known to leave its addresses to an IPAM plugin"),
        (TWICE, AttachMode.DIRECT, f"{TO_EXPLAIN}plugin acme has an IPAM plugin as well"),
    ],
)
def test_the_list_chooses_the_mechanism_in_the_sandbox(
    plugins: list[JsonObject], mode: AttachMode, reason: str
) -> None:
    """Docker knows the addresses wherever the IPAM plugin can run by itself, and else the reason says why not."""
    choice = choose(*plugins, option=AttachOption.SANDBOX)
    assert (choice.mode, choice.reason) == (mode, f"cni.attach=sandbox{reason}")


@pytest.mark.parametrize("option", [AttachOption.SANDBOX, AttachOption.MOVE])
def test_a_mode_can_be_the_default_of_the_daemon(option: AttachOption) -> None:
    """The reason and an error name the daemon's setting, not the option of the network."""
    listed = list_of({"type": "vlan", "ipam": HOST_LOCAL})
    request = AttachRequest(network=listed, options=Options(), default=option, version=NEW)
    reason = choose_mode(request, VERSIONS).reason
    assert reason == f"the daemon's --attach={option}"
    if option is not AttachOption.MOVE:
        with pytest.raises(Refused, match=f"the daemon's --attach={option} is not possible"):
            choose_mode(replace(request, version=OLD), VERSIONS)


def test_the_whole_name_of_a_link_needs_the_sandbox() -> None:
    """Libnetwork chooses the number of a link that it moves."""
    assert choose(BRIDGE, option=AttachOption.FAST, need=NAMED).mode is AttachMode.HYBRID
    assert choose({"type": "vlan", "ipam": HOST_LOCAL}, option=AttachOption.FAST, need=NAMED).mode is AttachMode.HYBRID
    with pytest.raises(BadOption, match=r"ifname.*Docker Engine 27.5.*cni.ifname-prefix"):
        choose(BRIDGE, option=AttachOption.FAST, need=NAMED, version=OLD)
    with pytest.raises(BadOption, match=r"ifname.*cni.attach=move.*cni.ifname-prefix"):
        choose(BRIDGE, option=AttachOption.MOVE, need=NAMED)


def test_fast_refuses_a_name_that_no_mode_of_its_own_can_give() -> None:
    """Mode *hybrid* cannot do it, and mode *move* gives no whole names."""
    with pytest.raises(BadOption, match=r"ifname.*plugin acme has an IPAM plugin as well.*cni.ifname-prefix"):
        choose(*TWICE, option=AttachOption.FAST, need=NAMED)


@pytest.mark.parametrize(
    ("option", "plugins", "version", "remedy"),
    [
        (AttachOption.MOVE, [BRIDGE], NEW, "because cni.attach=move; choose cni.attach=sandbox"),
        (AttachOption.MOVE, TWICE, NEW, "because cni.attach=move; choose cni.attach=sandbox"),
        (AttachOption.FAST, TWICE, NEW, "because plugin acme has an IPAM plugin as well; choose cni.attach=sandbox"),
        (AttachOption.FAST, [ACME], NEW, "; choose cni.attach=sandbox"),
        (AttachOption.FAST, [BRIDGE], OLD, "; use Docker Engine 28 or newer"),
    ],
)
def test_a_required_identity_in_mode_move(
    option: AttachOption, plugins: list[JsonObject], version: EngineVersion, remedy: str
) -> None:
    """The error names a mode that is possible, and that mode is."""
    with pytest.raises(Refused, match="plugins cannot know the container in mode move") as refused:
        choose(*plugins, option=option, version=version, need=REQUIRED)
    assert str(refused.value).endswith(f"{remedy}, or leave out cni.identity-required")
    assert choose(*plugins, option=option, version=version, need=KNOWN).mode is AttachMode.MOVE
    named = remedy.partition("choose cni.attach=")[2]
    if named:
        assert choose(*plugins, option=AttachOption(named), version=version, need=REQUIRED).mode.in_sandbox
