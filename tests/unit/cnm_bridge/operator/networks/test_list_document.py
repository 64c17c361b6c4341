# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list of a network: whatever is accepted gives a valid one; its file is written as a whole."""

import os
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, get_objects, parse_json
from cni_invoker import NetworkConfigurationList
from cni_invoker.documents.checks import check_ifname
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.operator.networks import creation
from cnm_bridge.operator.networks.creation import PlannedNetwork, find_taken_paths, list_path, show_file, write_list
from cnm_bridge.operator.networks.list_document import bridge_name, make_list, render_list
from cnm_bridge.operator.networks.wanted import WantedNetwork, parse_wanted


def plugins(wanted: WantedNetwork) -> tuple[JsonObject, ...]:
    """Return the plugins of a network's list."""
    return get_objects(make_list(wanted), "plugins")


def test_a_bridge() -> None:
    """It has a gateway, masquerades, lets packets pass Docker's rules, and publishes ports."""
    document = make_list(
        parse_wanted("blue", subnets=["10.22.0.0/16", "fd22::/64"], ranges=["10.22.9.0/24"], mtu=1400),
    )
    assert document == {
        "cniVersion": "1.0.0",
        "name": "blue",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni-blue",
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "mtu": 1400,
                "ipam": {
                    "type": "host-local",
                    "ranges": [
                        [
                            {
                                "subnet": "10.22.0.0/16",
                                "rangeStart": "10.22.9.0",
                                "rangeEnd": "10.22.9.255",
                                "gateway": "10.22.0.1",
                            }
                        ],
                        [{"subnet": "fd22::/64", "gateway": "fd22::1"}],
                    ],
                    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
                },
            },
            {"type": "firewall"},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def test_the_text_of_a_list() -> None:
    """A plugin is a line, so that an operator sees all of them at once."""
    document = make_list(parse_wanted("lan", parent="eth0", dhcp=True))
    assert render_list(document).splitlines() == [
        "{",
        '  "cniVersion": "1.0.0",',
        '  "name": "lan",',
        '  "plugins": [',
        '    {"type": "macvlan", "master": "eth0", "mode": "bridge", "ipam": {"type": "dhcp"}}',
        "  ]",
        "}",
    ]


def test_an_isolated_bridge() -> None:
    """It has no address, so neither the host nor anything behind it is reached, and no port is published."""
    bridge, firewall = plugins(parse_wanted("blue", subnets=["10.22.0.0/16"], isolated=True))
    assert bridge == {
        "type": "bridge",
        "bridge": "cni-blue",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/16"}]]},
    }
    assert firewall == {"type": "firewall"}


def test_a_guarded_bridge() -> None:
    """The plugin that guards is the last one, and a container's own entries may be sent to it."""
    *others, egress = plugins(parse_wanted("blue", subnets=["10.22.0.0/16"], allow=["a.example", "10.0.5.7:5432"]))
    assert tuple(others) == plugins(parse_wanted("blue", subnets=["10.22.0.0/16"]))
    capabilities = {"egress": True}
    assert egress == {"type": "egress", "allow": ["a.example", "10.0.5.7:5432"], "capabilities": capabilities}
    *_, audit = plugins(parse_wanted("blue", subnets=["10.22.0.0/16"], audit=True))
    assert audit == {"type": "egress", "allow": [], "audit": True, "capabilities": capabilities}


def test_a_parent() -> None:
    """Its containers are on the LAN; the packet filter does not see their packets."""
    (macvlan,) = plugins(parse_wanted("lan", subnets=["192.0.2.0/24"], parent="eth0"))
    assert (macvlan["type"], macvlan["master"], macvlan["mode"]) == ("macvlan", "eth0", "bridge")
    (isolated,) = plugins(parse_wanted("lan", subnets=["192.0.2.0/24"], parent="eth0", isolated=True))
    assert isolated["ipam"] == {"type": "host-local", "ranges": [[{"subnet": "192.0.2.0/24"}]]}
    (leased,) = plugins(parse_wanted("lan", parent="eth0", dhcp=True))
    assert leased["ipam"] == {"type": "dhcp"}


def test_a_long_name_has_a_short_bridge() -> None:
    """The kernel allows 15 characters; two long names have two bridges."""
    assert bridge_name("elevenchars") == "cni-elevenchars"
    one, other = bridge_name("twelve-chars"), bridge_name("twelve-charz")
    assert (len(one), len(other), one != other) == (15, 15, True)
    assert bridge_name("a.b") != "cni-a.b"  # in the name of a sysctl a dot separates


IPV4 = st.builds(
    lambda bits, length: ip_network((bits, length), strict=False),
    st.integers(1 << 24, (127 << 24) - 1),
    st.integers(8, 30),
)
IPV6 = st.builds(
    lambda bits, length: ip_network((bits.to_bytes(16), length), strict=False),
    st.integers(0x2000 << 112, (0xFE00 << 112) - 1),
    st.integers(8, 126),
)
NAME = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,19}", fullmatch=True)
KINDS: Sequence[dict[str, Any]] = (
    {},
    {"no_masquerade": True},
    {"isolated": True},
    {"parent": "eth0"},
    {"parent": "eth0", "isolated": True},
)


@given(
    name=NAME,
    subnets=st.tuples(st.none() | IPV4, st.none() | IPV6).filter(any),
    kind=st.sampled_from(KINDS),
    mtu=st.none() | st.integers(1280, 65535),
    data=st.data(),
)
def test_what_is_accepted_gives_a_valid_list(
    *,
    name: str,
    subnets: tuple[IPv4Network | None, IPv6Network | None],
    kind: dict[str, Any],
    mtu: int | None,
    data: st.DataObject,
) -> None:
    """Its subnets, gateways and ranges are those that were asked for; its names are valid."""
    chosen = [subnet for subnet in subnets if subnet is not None]

    def inside(subnet: IPv4Network | IPv6Network) -> int:
        return data.draw(st.integers(1, subnet.num_addresses - 2))

    spans = [sorted((inside(subnet), inside(subnet))) for subnet in chosen] if data.draw(st.booleans()) else []
    ranges = [f"{subnet[first]}-{subnet[last]}" for subnet, (first, last) in zip(chosen, spans, strict=False)]
    has_gateways = not kind.get("isolated") and data.draw(st.booleans())
    gateways = [str(subnet[inside(subnet)]) for subnet in chosen] if has_gateways else []
    given_subnets = data.draw(st.permutations([str(subnet) for subnet in chosen]))
    try:
        wanted = parse_wanted(name, subnets=given_subnets, gateways=gateways, ranges=ranges, mtu=mtu, **kind)
    except BadOption as exc:  # the gateway is the only address of the range
        assert "has no address for a container" in str(exc)  # noqa: PT017
        reject()
    document = make_list(wanted)
    network = NetworkConfigurationList.from_document(parse_json(render_list(document).encode()))
    assert network.name == name
    found = find_ranges(network)
    assert [one.subnet for one in found] == chosen
    assert [str(one.gateway) for one in found] == (gateways or [str(subnet[1]) for subnet in chosen])
    if ranges:
        assert [f"{one.first}-{one.last}" for one in found] == ranges
    else:
        assert all(one.size >= one.subnet.num_addresses - 3 for one in found)
    for plugin in network.plugins:
        assert plugin.document.get("mtu", mtu) == mtu
    check_ifname(bridge_name(name))


def test_limits() -> None:
    """A network with limits has the plugin that enforces them; one on a parent has no link of the host for it."""
    types = [plugin["type"] for plugin in plugins(parse_wanted("blue", subnets=["10.22.0.0/16"], limits=True))]
    assert types == ["bridge", "firewall", "bandwidth", "portmap"]
    on_lan = parse_wanted("lan", subnets=["192.0.2.0/24"], parent="eth0", limits=True)
    assert [plugin["type"] for plugin in plugins(on_lan)] == ["macvlan"]


def test_a_new_list(tmp_path: Path) -> None:
    """Its directory is made; every user may read it, whatever the umask is."""
    former = os.umask(0o077)
    try:
        write_list(list_path(tmp_path / "net.d", "blue"), "{}\n")
    finally:
        os.umask(former)
    (file,) = (tmp_path / "net.d").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("blue.conflist", 0o644)
    assert file.read_text("utf-8") == "{}\n"


def test_an_existing_file_stays(tmp_path: Path) -> None:
    """One that was made since the plan is not replaced, and nothing else is left."""
    file = list_path(tmp_path, "blue")
    file.write_text("mine", "utf-8")
    with pytest.raises(Refused, match=r"cannot write .*blue\.conflist: File exists; nothing was changed"):
        write_list(file, "{}\n")
    assert [(one.name, one.read_text("utf-8")) for one in tmp_path.iterdir()] == [("blue.conflist", "mine")]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """The error has the path and the reason."""
    (tmp_path / "net.d").write_text("", "utf-8")
    with pytest.raises(Refused, match=r"cannot write .*net\.d/blue\.conflist"):
        write_list(list_path(tmp_path / "net.d", "blue"), "{}\n")


def test_paths_that_are_taken(tmp_path: Path) -> None:
    """A dangling link is a file; a folder counts if plugins in it would be added to the list."""
    file = list_path(tmp_path, "a.b")
    assert find_taken_paths(file) == frozenset()
    file.symlink_to(tmp_path / "missing")
    (tmp_path / "a.b").mkdir()
    assert find_taken_paths(file) == {file}
    (tmp_path / "a.b" / "10-more.conf").write_text("{}", "utf-8")
    assert find_taken_paths(file) == {file, tmp_path / "a.b"}


def test_the_first_file_of_a_kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods would get the list: a note says so, on hosts where a kubelet is."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/cilium.conflist").write_text("{}", "utf-8")
    wanted = parse_wanted("blue", subnets=["10.22.0.0/16"])
    file = list_path(tmp_path / "net.d", "blue")
    monkeypatch.setattr(creation, "_KUBELET", tmp_path / "kubelet")
    assert [*creation.find_notes(wanted, file)] == []
    (tmp_path / "kubelet").mkdir()
    assert [*creation.find_notes(wanted, file)] == [
        f"blue.conflist comes first in {tmp_path}/net.d, and a kubelet's runtime takes the first file"
    ]
    assert [*creation.find_notes(wanted, list_path(tmp_path / "net.d", "red"))] == []


@pytest.mark.parametrize(
    ("major", "internal", "flags", "addressing"),
    [
        (27, False, "--ipam-driver null", {"IPAM": {"Driver": "null"}}),
        (28, False, "--ipv4=false", {"EnableIPv4": False}),
        (29, True, "--ipv4=false --internal", {"EnableIPv4": False}),
    ],
)
def test_the_flags_of_an_engine(major: int, internal: bool, flags: str, addressing: JsonObject) -> None:
    """The command and the request say the same."""
    options, version = {"cni.network": "a b"}, EngineVersion(major, 0)
    request = PlannedNetwork(name="blue", driver="cni-bridge", options=options, internal=internal, version=version)
    assert request.commands[0] == f"docker network create -d cni-bridge {flags} -o 'cni.network=a b' blue"
    assert request.body == {
        "Name": "blue",
        "Driver": "cni-bridge",
        "Options": {"cni.network": "a b"},
        "Internal": internal,
        "CheckDuplicate": True,
        **addressing,
    }


def test_the_command_that_writes_a_file(tmp_path: Path) -> None:
    """A shell writes the same text, whatever the path is, also into a directory that is missing."""
    path, text = tmp_path / "not made" / "it's here.conflist", '{"name": "$HOME `id`"}\n'
    subprocess.run(["sh", "-c", show_file(path, text)], check=True)
    assert path.read_text("utf-8") == text
