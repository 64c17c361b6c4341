# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Explains what would be done for an endpoint, for `cni-bridge explain`; pure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, find_object, get_objects, get_str, parse_json, render_json
from cni_invoker import PluginConfiguration, Request
from cnm_bridge.core.link.expected_link import DELEGATES
from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.dhcp import client_identifier, daemon_socket, find_dhcp
from cnm_bridge.core.lists.guard import is_guarded
from cnm_bridge.core.lists.plugins import find_unsuitable
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.planning.ports import CAPABILITY, idle_without_ports

_OURS: Final = "CNI_"
_RESERVATION: Final = 1
"""The number of the IPAM plugin that runs at CreateEndpoint, if Docker learns the addresses."""
_SHORT: Final = 100
"""The longest JSON value that is printed on one line, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a plan.

    Attributes:
        plan: The plan, whose list has a version that its plugins support.
        requests: The plugins' requests for ADD, in the order of the list.
        paths: Plugin → its executable; None if it runs in process.
        docker_network: Name of the Docker network; None if a CNI configuration is explained.
        problems: Why no container starts.
        warnings: Assumptions about the plugins, and options that have no effect.
    """

    plan: Plan
    requests: Sequence[Request]
    paths: Mapping[str, Path | None] = field(hash=False)
    docker_network: str | None = None
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def render_json(self) -> JsonObject:
        """Return the explanation as JSON, with the complete requests except `prevResult`."""
        configuration = self.plan.configuration
        return {
            "dockerNetwork": self.docker_network,
            "name": configuration.name,
            "source": None if configuration.source is None else str(configuration.source),
            "cniVersion": configuration.cni_version,
            "addresses": [str(address) for address in self.plan.addresses],
            "mac": self.plan.requested.mac,
            "ifnamePrefix": self.plan.options.ifname_prefix,
            "sticky": self.plan.options.sticky,
            "identity": self._identity(),
            "dhcp": self._dhcp(),
            "attach": {"mode": self.plan.attach.mode.shown, "reason": self.plan.attach.reason},
            "plugins": [
                {
                    "type": request.plugin,
                    "path": None if (path := self.paths[request.plugin]) is None else str(path),
                    "publishesPorts": publishes,
                    "environment": _environment(request),
                    "stdin": parse_json(request.stdin),
                }
                for request, publishes in zip(self.requests, self._publishers(), strict=True)
            ],
            "sandboxSync": [] if self.plan.attach.mode.in_sandbox else list(_preview_sandbox(self.plan)),
            "problems": list(self.problems),
            "warnings": list(self.warnings),
        }

    def render_details(self, *, with_plugins: bool = False) -> str:
        """Return a line for each option with an effect, and for each warning; empty if there is none.

        With plugins: also what each receives, and what is synced into the sandbox.
        """
        return "\n".join((*self._option_lines(), *(self._plugin_lines() if with_plugins else ()))).strip("\n")

    def sentences(self) -> Iterator[str]:
        """Yield what a container gets, in plain words: addresses, gateway, link, ports, names, plugins."""
        plan, configuration = self.plan, self.plan.configuration
        name = self.docker_network or configuration.name
        yield from (f"No container starts on {name}: {problem}" for problem in self.problems)
        yield f"A container on {name} gets {self._address_words()}."
        link = plan.options.ifname or f"{plan.options.ifname_prefix}N"
        how = "is made in it by the plugins" if plan.attach.mode.in_sandbox else "is moved into it by Docker"
        yield f"Its link {link} {how} (mode {plan.attach.mode.shown}), because {plan.attach.reason}."
        if plan.attach.mode.falls_back_to_move and plan.options.ifname is None:
            unless = "refused, unless its link has a name of its own"
            yield f"On several networks it is {'moved' if find_unsuitable(configuration) is None else unless}."
        publishers = [one.plugin for one, publishes in zip(self.requests, self._publishers(), strict=True) if publishes]
        yield f"Ports (-p) are published by {publishers[0]}." if publishers else "It can publish no ports (-p)."
        if is_guarded(configuration):
            yield "It reaches only what the plugin egress allows."
        if not plan.attach.mode.docker_knows_addresses:
            yield "Docker does not know its addresses, so other containers do not find it by name."
        else:
            yield "Containers find each other by name."
        plugins = [plugin.type for plugin in configuration.plugins]
        yield (
            f"The list {configuration.name} ({configuration.source}, CNI {configuration.cni_version}) runs "
            f"{' and '.join(filter(None, (', '.join(plugins[:-1]), plugins[-1])))}; --plugins shows what each receives."
        )

    def _address_words(self) -> str:
        """Describe the addresses and the gateway."""
        if self.plan.addresses:
            return f"{' and '.join(map(str, self.plan.addresses))}, or does not start"
        main = self.plan.configuration.plugins[0]
        ipam = find_object(main.document, "ipam") or {}
        if find_dhcp(self.plan.configuration) is not None:
            return "its address from the DHCP server of the LAN"
        # With a reservation two plugins have the section: the IPAM plugin, and the one that makes the link.
        ranges = tuple(dict.fromkeys(find_ranges(self.plan.configuration)))
        if not ranges:
            giver = main.ipam_type or (None if main.type in DELEGATES else main.type)
            return f"the addresses that {giver} gives" if giver else "no address: the list has no IPAM plugin"
        words = " and ".join(
            f"an address of {one.subnet}" + ("" if one.is_whole else f", from {one.first} to {one.last}")
            for one in ranges
        )
        has_gateway = bool(ipam.get("routes")) or main.document.get("isDefaultGateway") is True
        return f"{words}, with the gateway {' and '.join(str(one.gateway) for one in ranges)}" if has_gateway else words

    def _option_lines(self) -> Iterator[str]:
        """Yield what options change, and warnings."""
        plan = self.plan
        if plan.requested.mac:
            by = "by the plugins" if plan.passes_mac else "by Docker: no plugin of the list accepts one"
            yield f"MAC            {plan.requested.mac}, set {by}"
        elif plan.own_mac and plan.options.client_id is None:
            yield f"MAC            {plan.own_mac}, which the configuration gives"
        if plan.options.sticky is not None:
            yield (
                f"key            {plan.options.sticky}: plugins are also asked for the addresses and the MAC of the "
                "last container with it"
            )
        further = {"identity": self._identity(), "DHCP": self._dhcp()}
        yield from (f"{name:<14} {text}" for name, text in further.items() if text is not None)
        yield from (f"warning        {warning}" for warning in self.warnings)

    def _plugin_lines(self) -> Iterator[str]:
        """Yield the request of each plugin, and what is synced into the sandbox."""
        idle = idle_without_ports(self.plan.configuration)
        for number, (request, publishes) in enumerate(zip(self.requests, self._publishers(), strict=True), start=1):
            yield from ("", f"{number}. {request.plugin} ({self.paths[request.plugin] or 'in process'})")
            yield from (f"   {name}={value}" for name, value in _environment(request).items())
            yield from (f"   {line}" for line in _indented(parse_json(request.stdin)))
            yield from (f"   {note}" for note in self._notes(number))
            if publishes:
                when = "not run now, but" if number - 1 in idle else "run again"
                yield f"   {when} with the ports to publish, if any, when the endpoint becomes the gateway"
        if not self.plan.attach.mode.in_sandbox:
            yield from ("", "after Docker has moved the link into the container:")
            yield from (f"   {one}" for one in _preview_sandbox(self.plan) or ("nothing that the configuration shows",))

    def _identity(self) -> str | None:
        """Describe what plugins learn about the container, None if nothing is requested."""
        request = self.plan.options.identity
        if request is None:
            return None
        if not self.plan.attach.mode.in_sandbox:
            return "docker, but not known in mode move"
        labels = f", labels {', '.join(request.labels)}" if request.labels else ""
        missing = "without it the container is refused" if request.is_required else "without it they run all the same"
        return f"docker{labels}: added at Join to what the plugins receive; {missing}"

    def _dhcp(self) -> str | None:
        """Describe the exchange with the DHCP server, None if addresses do not come from one."""
        plugin = find_dhcp(self.plan.configuration)
        if plugin is None:
            return None
        environment, name = self.requests[0].environment, self.plan.configuration.name
        identifier = client_identifier(environment["CNI_CONTAINERID"], name, environment["CNI_IFNAME"])
        is_stable = self.plan.options.client_id is not None
        stable = "the same" if is_stable else "another one, unless cni.dhcp.client-id is given,"
        mac = f" and MAC {self.plan.own_mac}" if self.plan.own_mac else ""
        return (
            f"at Join, by the daemon at {daemon_socket(plugin)}, as client {identifier}{mac}; {stable} after a restart "
            "of the container"
        )

    def _notes(self, number: int) -> Iterator[str]:
        """Yield what the request of a plugin, counted from 1, does not show."""
        has_reservation = self.plan.attach.mode.has_reservation
        if has_reservation:
            yield "at CreateEndpoint" if number == _RESERVATION else "at Join, in the sandbox"
        if has_reservation and number == _RESERVATION + 1:
            yield f"with the addresses that {self.requests[0].plugin} reserved, given by static"
        if number > _RESERVATION + int(has_reservation):
            yield "and prevResult, the result of the previous plugin"

    def _publishers(self) -> tuple[bool, ...]:
        plugins = self.plan.configuration.plugins
        first = 2 if self.plan.attach.mode.has_reservation else 1  # the one that makes the link runs only once
        return tuple(index >= first and CAPABILITY in plugin.capabilities for index, plugin in enumerate(plugins))


def _preview_sandbox(plan: Plan) -> tuple[str, ...]:
    """Describe what has to be synced into the sandbox, as far as the list shows it; plugins may do more."""
    found: list[str] = []
    for plugin in plan.configuration.plugins:
        with suppress(JsonError):  # whether to refuse malformed values is up to the plugin
            found += _foresee_plugin(plugin)
    if plan.options.sysctls:
        found.append(f"sysctls of the endpoint's options: {', '.join(map(str, plan.options.sysctls))}")
    for version in (4, 6):
        further_addresses = [str(address) for address in plan.addresses if address.version == version][1:]
        found += [f"further address {address}" for address in further_addresses]
    return tuple(found)


def _foresee_plugin(plugin: PluginConfiguration) -> Iterator[str]:
    sysctls = find_object(plugin.document, "sysctl") or {}
    if plugin.type == "tuning" and sysctls:
        yield f"sysctls of tuning: {', '.join(sysctls)}"
    if plugin.type == "sbr":
        yield "policy rules and routing tables of sbr"
    for route in get_objects(find_object(plugin.document, "ipam") or {}, "routes"):
        further = sorted(set(route) - {"dst", "gw"})
        if further:
            yield f"route to {get_str(route, 'dst')}: its {', '.join(further)}"


def _environment(request: Request) -> dict[str, str]:
    """Return the environment variables of CNI; plugins also inherit the daemon's environment."""
    return {name: value for name, value in request.environment.items() if name.startswith(_OURS)}


def _indented(value: JsonValue) -> list[str]:
    """Return JSON as indented lines, with short values on one line."""
    text = render_json(value).decode()
    if len(text) <= _SHORT or not isinstance(value, dict):
        return [text]
    lines = ["{"]
    for index, (key, item) in enumerate(value.items()):
        first, *others = _indented(item)
        inner = [f"{render_json(key).decode()}: {first}", *others]
        inner[-1] += "," if index < len(value) - 1 else ""
        lines += [f"  {line}" for line in inner]
    return [*lines, "}"]
