# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a driver is sent and what it answers, from and to CNI's terms; pure.

Source: moby `daemon/libnetwork/drivers/remote/api/api.go`; as libnetwork fills it (docs/docker-protocol.md).
"""

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    find_int,
    find_object,
    find_str,
    get_bool,
    get_int,
    get_objects,
    get_str,
)
from cni_plugin import Call, CallError, ErrorCode

if TYPE_CHECKING:
    from cni_invoker.documents.results import Result
    from cnm_plugin.link import Routes

__all__ = ["Joined", "Settings", "chosen_interface", "create_endpoint", "create_network", "identity", "render_result"]

_PROTOCOLS: Final = {"tcp": 6, "udp": 17, "sctp": 132}
_EXPOSED: Final = "com.docker.network.endpoint.exposedports"
_PORTS: Final = "com.docker.network.portmap"
_MAC: Final = "com.docker.network.endpoint.macaddress"
_GENERIC: Final = "com.docker.network.generic"
_INTERNAL: Final = "com.docker.network.internal"
_IPV6: Final = "com.docker.network.enable_ipv6"
_CONNECTED: Final = 1
_MAC_FORM: Final = re.compile(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}")


def identity(*parts: str) -> str:
    """Return Docker's kind of ID, 64 hexadecimal digits, for something that CNI identifies by names."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


class Settings(NamedTuple):
    """The plugin's part of the configuration.

    Attributes:
        driver: The driver's name.
        options: The network's options, as of `docker network create -o`.
        endpoint_options: The endpoint's, as of `docker network connect --driver-opt`.
        internal: Whether the network has no way out.
        ports: Ports to publish, in Docker's form.
        mac: The MAC address to use, empty to let the driver choose: the capability `mac`, `args.cni.mac`, or `MAC` in
            CNI_ARGS, which podman uses.
    """

    driver: str
    options: JsonObject
    endpoint_options: JsonObject
    internal: bool
    ports: tuple[JsonObject, ...]
    mac: str

    @classmethod
    def of_call(cls, call: Call) -> "Settings":
        """Return the settings of a call.

        Raises:
            CallError: A value is missing or invalid (code 7).
        """
        try:
            options, endpoint_options = (find_object(call.config, key) or {} for key in ("options", "endpointOptions"))
            for key, value in (*options.items(), *endpoint_options.items()):
                if not isinstance(value, str):
                    raise JsonError(f"option {key} must be a string, not {value!r}, because Docker's are strings")
            return cls(
                driver=get_str(call.config, "driver"),
                options=options,
                endpoint_options=endpoint_options,
                internal=get_bool(call.config, "internal"),
                ports=tuple(map(_port, get_objects(call.runtime_config, "portMappings"))),
                mac=_mac(_wanted_mac(call)),
            )
        except JsonError as exc:
            raise CallError(ErrorCode.INVALID_CONFIGURATION, f"invalid configuration of cnm: {exc}") from exc

    @property
    def labels(self) -> JsonObject:
        """The options of Join and ProgramExternalConnectivity."""
        exposed: list[JsonValue] = [{"Proto": port["Proto"], "Port": port["Port"]} for port in self.ports]
        return {_EXPOSED: exposed, _PORTS: list(self.ports)}


def _wanted_mac(call: Call) -> str:
    """Return the MAC address that the runtime wants: as a capability, by the configuration, or in CNI_ARGS."""
    args = find_object(find_object(call.config, "args") or {}, "cni") or {}
    return find_str(call.runtime_config, "mac") or find_str(args, "mac") or call.args.get("MAC", "")


def _mac(mac: str) -> str:
    if mac and _MAC_FORM.fullmatch(mac) is None:
        raise JsonError(f"mac {mac!r} is not an Ethernet address")
    return mac


def _port(mapping: JsonObject) -> JsonObject:
    host, protocol = get_int(mapping, "hostPort"), find_str(mapping, "protocol") or "tcp"
    if protocol not in _PROTOCOLS:
        raise JsonError(f"protocol {protocol!r} is not one of {', '.join(_PROTOCOLS)}")
    return {
        "Proto": _PROTOCOLS[protocol],
        "IP": "",
        "Port": get_int(mapping, "containerPort"),
        "HostIP": find_str(mapping, "hostIP") or "",
        "HostPort": host,
        "HostPortEnd": host,
    }


def create_network(network_id: str, settings: Settings, assigned: "Result | None") -> JsonObject:
    """Return the body of CreateNetwork.

    Args:
        network_id: The network's ID.
        settings: The settings.
        assigned: What the IPAM plugin has assigned to the first endpoint: the network has its subnets. None: the driver
            chooses the addresses, as with Docker's IPAM driver `null`.
    """
    pools: dict[int, JsonObject] = {}
    for ip in () if assigned is None else assigned.ips:
        prefix = ip.address.network.prefixlen
        gateway: JsonObject = {"Gateway": f"{ip.gateway}/{prefix}"} if ip.gateway else {}
        pool: JsonObject = {"AddressSpace": "LocalDefault", "Pool": str(ip.address.network), **gateway}
        pools.setdefault(ip.address.version, pool)
    unknown: JsonObject = {"AddressSpace": "null", "Pool": "0.0.0.0/0"}
    options: JsonObject = {_IPV6: 6 in pools, _GENERIC: settings.options}  # noqa: PLR2004  # IPv6
    return {
        "NetworkID": network_id,
        "Options": {**options, _INTERNAL: True} if settings.internal else options,
        "IPv4Data": [unknown] if assigned is None else [pools[4]] if 4 in pools else [],  # noqa: PLR2004
        "IPv6Data": [pools[6]] if 6 in pools else [],  # noqa: PLR2004
    }


def create_endpoint(ids: JsonObject, settings: Settings, assigned: "Result | None") -> JsonObject:
    """Return the body of CreateEndpoint, with the first address of each family that was assigned."""
    mac: JsonObject = {}
    if settings.mac:
        mac = {_MAC: base64.b64encode(bytes.fromhex(settings.mac.replace(":", ""))).decode()}
    return {
        **ids,
        "Interface": _interface(assigned, settings.mac),
        "Options": {**settings.labels, **settings.endpoint_options, **mac},
    }


def _interface(assigned: "Result | None", mac: str) -> dict[str, str]:
    addresses = {ip.address.version: str(ip.address) for ip in reversed(() if assigned is None else assigned.ips)}
    return {"Address": addresses.get(4, ""), "AddressIPv6": addresses.get(6, ""), "MacAddress": mac}


def chosen_interface(reply: JsonObject, assigned: "Result | None", mac: str) -> dict[str, str]:
    """Return the interface after CreateEndpoint: what was asked for, and what the driver has chosen.

    Raises:
        CallError: The driver has changed a value that it was given; libnetwork refuses that as well.
    """
    interface = _interface(assigned, mac)
    chosen = find_object(reply, "Interface") or {}
    for key, given in interface.items():
        value = find_str(chosen, key) or ""
        if value and given:
            raise CallError(ErrorCode.INTERNAL, f"driver modified interface {key}: {given} cannot become {value}")
        interface[key] = given or value
    return interface


class Joined(NamedTuple):
    """A driver's reply to Join.

    Attributes:
        link: Name of the link in the host's namespace; empty: none is moved.
        gateways: Next hop of the default route by family, 4 and 6.
        routes: The other routes: destination, and next hop or None; connected ones first, as others need them.
    """

    link: str
    gateways: dict[int, str]
    routes: tuple[tuple[str, str | None], ...]

    @classmethod
    def from_reply(cls, reply: JsonObject) -> "Joined":
        """Parse the reply.

        Raises:
            JsonError: It is invalid.
        """
        keys = {4: find_str(reply, "Gateway"), 6: find_str(reply, "GatewayIPv6")}
        routes = [
            (
                get_str(route, "Destination"),
                None if find_int(route, "RouteType") == _CONNECTED else get_str(route, "NextHop"),
            )
            for route in get_objects(reply, "StaticRoutes")
        ]
        return cls(
            link=find_str(find_object(reply, "InterfaceName") or {}, "SrcName") or "",
            gateways={family: gateway for family, gateway in keys.items() if gateway},
            routes=tuple(sorted(routes, key=lambda route: route[1] is not None)),
        )


def render_result(
    call: Call, interface: dict[str, str], routes: "Routes", gateways: dict[int, str], assigned: "Result | None"
) -> JsonObject:
    """Return the result of ADD: the link, its addresses, and all routes that lead through it."""
    ips: list[JsonValue] = [
        {"address": address, "interface": 0, **({"gateway": gateways[family]} if family in gateways else {})}
        for family, key in ((4, "Address"), (6, "AddressIPv6"))
        if (address := interface[key])
    ]
    mac: JsonObject = {"mac": interface["MacAddress"]} if interface["MacAddress"] else {}
    dns = None if assigned is None else assigned.document.get("dns")
    return {
        "interfaces": [{"name": call.ifname, "sandbox": call.netns, **mac}],
        "ips": ips,
        "routes": [{"dst": dst, **({"gw": hop} if hop else {})} for dst, hop in routes],
        **({"dns": dns} if dns else {}),
    }
