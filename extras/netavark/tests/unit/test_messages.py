# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What netavark sends, in CNI's terms; the documents are those of netavark 1.14 and 2.1."""

import copy
from ipaddress import ip_interface

import pytest

from cni_invoker import JsonObject, NetworkConfigurationList, Result
from cni_invoker.errors import InvalidParameter
from netavark_plugin.messages import (
    Container,
    Document,
    NotUnderstood,
    Refused,
    Settings,
    create_network,
    render_status,
)

NETWORK: Document = {
    "name": "blue",
    "id": "2f259bab93aaaaa2542ba43ef33eb990d0999ee1b9924b557b7be53c0b7a1bb9",
    "driver": "cni",
    "created": "2026-01-01T00:00:00Z",
    "ipv6_enabled": False,
    "internal": False,
    "dns_enabled": True,
    "options": {"network": "podman-blue"},
    "ipam_options": {"driver": "none"},
    "labels": {"team": "net"},
}
SETUP: Document = {
    "container_id": "752947ff91f961eb3cb47ffe9315016979f3ffbec09e4d96a4fae3fb03391697",
    "container_name": "web",
    "port_mappings": [
        {"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp,udp", "range": 2},
        {"container_port": 53, "host_ip": "127.0.0.1", "host_port": 53, "protocol": "udp", "range": 1},
    ],
    "network": NETWORK,
    "network_options": {
        "aliases": ["752947ff91f9", "www"],
        "interface_name": "eth0",
        "static_ips": ["10.88.0.50"],
        "static_mac": "aa:bb:cc:dd:aa:00",
    },
}
RESULT = Result.from_document(
    {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "cni0"}, {"name": "eth0", "mac": "AA:bb:cc:dd:aa:00", "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.88.0.50/16", "gateway": "10.88.0.1", "interface": 1}, {"address": "fd00::5/64"}],
        "dns": {"nameservers": ["10.88.0.1", "a.name"], "search": ["dns.podman"]},
    }
)


def a_list(*capabilities: str, second: str = "other") -> NetworkConfigurationList:
    """A list of two plugins; the second declares capabilities."""
    declared: JsonObject = dict.fromkeys(capabilities, True)
    plugins: list[JsonObject] = [{"type": "bridge"}, {"type": second, "capabilities": declared}]
    return NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "podman-blue", "plugins": plugins})


def changed(document: Document, *path: str, value: object) -> Document:
    """A copy with another value."""
    whole = copy.deepcopy(document)
    part = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return whole


def test_create() -> None:
    """Podman keeps its own fields, and neither chooses addresses nor answers names."""
    asked = changed(NETWORK, "ipam_options", value=None)
    assert create_network(asked, a_list()) == NETWORK | {"dns_enabled": False}
    assert create_network(asked, a_list("aliases"))["dns_enabled"] is True
    assert create_network(changed(asked, "dns_enabled", value=False), a_list("aliases"))["dns_enabled"] is False


@pytest.mark.parametrize(
    ("key", "value", "option"),
    [
        ("subnets", [{"subnet": "10.1.0.0/16"}], "--subnet"),
        ("routes", [{"destination": "10.1.0.0/16"}], "--route"),
        ("network_interface", "br7", "--interface-name"),
        ("network_dns_servers", ["10.1.0.1"], "--dns"),
        ("internal", True, "--internal"),
        ("ipv6_enabled", True, "--ipv6"),
        ("ipam_options", {"driver": "dhcp"}, "--ipam-driver"),
    ],
)
def test_what_the_list_decides_is_refused(key: str, value: object, option: str) -> None:
    """An option that would have no effect is an error."""
    with pytest.raises(Refused, match=f"{option}.*: a CNI list decides this itself"):
        create_network(changed(NETWORK, key, value=value), a_list())


def test_settings() -> None:
    """Without options it is the list of podman's name, in the usual directories."""
    settings = Settings.of_network(changed(NETWORK, "options", value=None))
    assert settings.network == "blue"
    assert str(settings.config_dirs[0]) == "/etc/cni/net.d"
    assert "/usr/lib/cni" in map(str, settings.plugin_dirs)
    given = Settings.of_network(changed(NETWORK, "options", value={"config-dirs": "/a:/b", "plugin-dirs": "/c"}))
    assert [list(map(str, one)) for one in (given.config_dirs, given.plugin_dirs)] == [["/a", "/b"], ["/c"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"netwrok": "blue"}, "unknown option 'netwrok'; the driver's options are network, config-dirs, plugin-dirs"),
        ({"config-dirs": "net.d"}, "option 'config-dirs' is 'net.d'; it must be absolute paths"),
        ({"plugin-dirs": ":"}, "option 'plugin-dirs' is ':'"),
    ],
)
def test_unusable_options(options: Document, message: str) -> None:
    """The error names the option."""
    with pytest.raises(Refused, match=message):
        Settings.of_network(changed(NETWORK, "options", value=options))


def test_what_the_plugins_receive() -> None:
    """CNI_ARGS as from podman's own CNI, and the same by capability; ranges and protocols of ports are expanded."""
    attachment = Container.from_document(SETUP).attachment(a_list(), "/run/netns/a")
    assert attachment.container_id == SETUP["container_id"]
    assert (attachment.ifname, attachment.netns) == ("eth0", "/run/netns/a")
    wanted = {"IgnoreUnknown": "1", "K8S_POD_NAME": "web", "IP": "10.88.0.50", "MAC": "aa:bb:cc:dd:aa:00"}
    assert dict(attachment.args) == wanted
    given = attachment.capability_args
    assert {key: given[key] for key in ("ips", "mac", "aliases")} == {
        "ips": ["10.88.0.50"],
        "mac": "aa:bb:cc:dd:aa:00",
        "aliases": ["752947ff91f9", "www"],
    }
    ports = [(one["hostPort"], one["containerPort"], one["protocol"]) for one in port_mappings(given)]
    assert ports == [(8080, 80, "tcp"), (8081, 81, "tcp"), (8080, 80, "udp"), (8081, 81, "udp"), (53, 53, "udp")]
    assert [one.get("hostIP", "") for one in port_mappings(given)] == ["", "", "", "", "127.0.0.1"]


def port_mappings(given: object) -> list[Document]:
    """The port mappings of capability arguments."""
    assert isinstance(given, dict)
    return list(given["portMappings"])


def test_dnsname_receives_names_in_its_own_form() -> None:
    """It wants them by network, as podman's own CNI had them."""
    attachment = Container.from_document(SETUP).attachment(a_list("aliases", second="dnsname"), "/run/netns/a")
    assert attachment.capability_args["aliases"] == {"podman-blue": ["752947ff91f9", "www"]}


def test_a_container_without_wishes() -> None:
    """Only the name is passed on."""
    document = changed(SETUP, "network_options", value={"interface_name": "eth1", "static_ips": None})
    attachment = Container.from_document(changed(document, "port_mappings", value=None)).attachment(None, "")
    assert dict(attachment.args) == {"IgnoreUnknown": "1", "K8S_POD_NAME": "web"}
    assert attachment.capability_args == {}


@pytest.mark.parametrize("key", ["container_id", "container_name", "network", "network_options"])
def test_another_input(key: str) -> None:
    """A later API would be noticed."""
    with pytest.raises(NotUnderstood, match=f"netavark's plugin API 1.0.0: KeyError\\('{key}'\\)"):
        Container.from_document({name: value for name, value in SETUP.items() if name != key})


def test_invalid_values_are_named() -> None:
    """The library checks what becomes a variable."""
    container = Container.from_document(changed(SETUP, "container_id", value="../x"))
    with pytest.raises(InvalidParameter, match=r"\.\./x"):
        container.attachment(a_list(), "/run/netns/a")


def test_status() -> None:
    """Addresses with their prefix; netavark does not understand a name server that is not an address."""
    assert render_status("eth0", RESULT) == {
        "dns_search_domains": ["dns.podman"],
        "dns_server_ips": ["10.88.0.1"],
        "interfaces": {
            "eth0": {
                "mac_address": "AA:bb:cc:dd:aa:00",
                "subnets": [
                    {"ipnet": "10.88.0.50/16", "gateway": "10.88.0.1"},
                    {"ipnet": str(ip_interface("fd00::5/64")), "gateway": None},
                ],
            }
        },
    }


def test_wishes_that_plugins_ignore() -> None:
    """Addresses are compared with the result, whatever their spelling; ports with the capabilities."""
    container = Container.from_document(SETUP)
    assert container.missing(RESULT) == ""
    other = changed(
        changed(SETUP, "network_options", "static_ips", value=["10.88.0.9", "fd00:0::5"]), "network", value=NETWORK
    )
    other = changed(other, "network_options", "static_mac", value="02:00:00:00:00:01")
    assert Container.from_document(other).missing(RESULT) == "--ip 10.88.0.9, --mac-address 02:00:00:00:00:01"
    assert container.ignored(a_list("portMappings")) == ""
    assert container.ignored(a_list()).startswith("-p has no effect on network podman-blue: no plugin")
