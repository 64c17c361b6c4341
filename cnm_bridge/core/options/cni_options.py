# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parses the options of `docker network create -o` and of an endpoint's `driver-opt`, which are the same; pure."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, parse_json
from cni_bridge_state import IdentityRequest
from cni_invoker.documents.checks import check_argument
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import BadOption, endpoint_option
from cnm_bridge.core.lists.guard import (
    ALLOW,
    EGRESS_OF_NETWORKS,
    EGRESS_OPTIONS,
    EgressOptions,
    parse_egress,
    parse_entries,
)
from cnm_bridge.core.options.docker_options import (
    IFNAME,
    NETWORK_OPTIONS,
    SYSCTLS,
    LinkSetting,
    parse_announcements,
    parse_ifname,
    parse_sysctls,
    refuse_docker_option,
    split_unknown,
)
from cnm_bridge.core.options.values import (
    BANDWIDTH_OPTIONS,
    IDENTITY_ARGS,
    IDENTITY_OPTIONS,
    IPS,
    WantedAddress,
    bandwidth_args,
    parse_identity,
    parse_identity_args,
    parse_ips,
)
from cnm_bridge.core.settings import AttachOption

CONFIGURATION: Final = "cni.network"
ATTACH: Final = "cni.attach"
_IFNAME_PREFIX: Final = "cni.ifname-prefix"
_CLIENT_ID: Final = "cni.dhcp.client-id"
STICKY: Final = "cni.sticky"
_ARGS: Final = "cni.args."
_LABELS: Final = "cni.labels."
_CAPABILITY: Final = "cni.capability."

OPTIONS: Final = frozenset(
    {
        *(CONFIGURATION, ATTACH, IPS, _IFNAME_PREFIX, _CLIENT_ID, STICKY),
        *(*IDENTITY_OPTIONS, *BANDWIDTH_OPTIONS, *EGRESS_OPTIONS),
    }
)
"""The options with fixed names."""
OPTION_FAMILIES: Final = {_ARGS: f"{_ARGS}KEY", _LABELS: f"{_LABELS}KEY", _CAPABILITY: f"{_CAPABILITY}NAME"}
"""The options whose names end in the user's own word: prefix → how to show them in an error."""

_OTHER_WAYS: Final[Mapping[str, str]] = {
    "portmappings": "publish ports with -p",
    "bandwidth": "use cni.bandwidth.ingress-rate and its like",
    "ips": "use cni.ips",
    "mac": "use --mac-address",
    "egress": f"use {ALLOW}",
}
"""Capabilities, in lower case, with their own options, whose values are checked."""

_IGNORE_UNKNOWN: Final = "IgnoreUnknown"
_KNOWN_ARGS: Final = {
    key.lower(): key
    for key in (
        *("K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID"),
        *("IP", "MAC", "GATEWAY", _IGNORE_UNKNOWN),
        "OvnPort",
    )
}
"""Lower case → spelling of the arguments that plugins read: those of Kubernetes, of CNI CONVENTIONS, and of ovs-cni."""
UNENCODABLE: Final = re.compile("[\0\ud800-\udfff]")
"""What no argument, environment variable or path of a process may have."""
_DEFAULT_PREFIX: Final = "eth"
_IDENTIFIER: Final = re.compile(r"[ -~]{1,128}")
_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}")
"""As names of containers, in lower case: `docker run` of 20.10 converts the values of driver-opt."""
_PREFIX: Final = re.compile(r"[a-zA-Z]([a-zA-Z0-9_-]{0,11}[a-zA-Z_-])?")
"""Docker appends up to two digits; a link name has at most 15 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parsed options of a network, or of an endpoint and its network.

    Attributes:
        labels: The values for `args.cni.labels`.
        capabilities: Capability arguments, by capability, including `bandwidth`.
        ifname: The link's whole name in the container, None if it was not given.
        attach: How to attach; None for the daemon's default.
        client_id: What identifies the container to the DHCP server, also after a restart; None if it was not given.
        sticky: The key whose last addresses and MAC the plugins are asked for, None if it was not given.
        identity_args: The template by which they receive it in `args` as well, None if it was not given.
        egress: What containers of the network reach; their own further entries are among `capabilities`.
        unknown: The names of the endpoint's options that are neither ours nor known to be Docker's.
    """

    configuration: str | None = None
    ips: tuple[WantedAddress, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    capabilities: JsonObject = field(default_factory=dict, hash=False)
    ifname_prefix: str = _DEFAULT_PREFIX
    ifname: str | None = None
    sysctls: tuple[LinkSetting, ...] = ()
    attach: AttachOption | None = None
    client_id: str | None = None
    sticky: str | None = None
    identity: IdentityRequest | None = None
    identity_args: JsonObject | None = field(default=None, hash=False)
    egress: EgressOptions = EgressOptions()  # noqa: RUF009 - frozen
    unknown: tuple[str, ...] = ()

    @property
    def disables_ipv6(self) -> bool:
        """Whether a setting of the link disables IPv6 on it."""
        settings = {(setting.family, setting.name): setting.value for setting in self.sysctls}
        return settings.get(("net/ipv6/conf", "disable_ipv6")) == "1"


def merge_options(network: Mapping[str, str], endpoint: Mapping[str, str]) -> dict[str, str]:
    """Return a network's options, overridden by an endpoint's.

    `docker run --network name=N,driver-opt=…` converts options to lower case, so an endpoint's option overrides the
    network's option that differs only in case.
    """
    defaults, own = _with_known_spelling(network), _with_known_spelling(endpoint)
    spelt = {name.lower(): name for name in defaults}
    return {**defaults, **{spelt.get(name, name) if name not in defaults else name: own[name] for name in own}}


def different_options(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the options that only one of two networks has, or that have different values."""
    return tuple(sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name)))


def parse_options(network: Mapping[str, str], endpoint: Mapping[str, str] | None = None) -> Options:
    """Parse the options of a network and, if given, those of an endpoint on it, which take precedence."""
    given, unknown = split_unknown(endpoint or {})
    further = parse_entries(given)
    given.pop(ALLOW, None)  # in addition to the network's
    for option in (IDENTITY_ARGS, *EGRESS_OF_NETWORKS):
        if option in given:
            raise BadOption(option, "is an option of networks, not of containers")
    if STICKY in network:
        raise BadOption(
            STICKY,
            "is an option of containers, not of networks, because a container's name is not always known when its "
            f"address is chosen; give each container a key of its own with {endpoint_option(STICKY, 'KEY')}",
        )
    options = merge_options(network, given)
    for option, value in options.items():
        if UNENCODABLE.search(option + value):
            raise BadOption(option, "has a NUL or a lone surrogate, which no program can receive; leave it out")
    _refuse_unknown(options)
    parse_announcements(network)
    configuration = options.get(CONFIGURATION)
    if configuration == "":
        raise BadOption(CONFIGURATION, "is empty; give the name of a CNI network configuration")
    bandwidth = bandwidth_args(options)
    return Options(
        configuration=configuration,
        ips=parse_ips(options[IPS]) if IPS in options else (),
        args=tuple(_parse_args(options)),
        labels=tuple((key, value) for _, key, value in _family(options, _LABELS)),
        capabilities={
            **dict(_parse_capabilities(options)),
            **({"bandwidth": bandwidth} if bandwidth else {}),
            **({"egress": {"allow": [*further]}} if further else {}),
        },
        ifname_prefix=_parse_prefix(options.get(_IFNAME_PREFIX, _DEFAULT_PREFIX)),
        ifname=parse_ifname(options[IFNAME]) if IFNAME in options else None,
        sysctls=parse_sysctls(options[SYSCTLS]) if SYSCTLS in options else (),
        attach=_parse_attach(options[ATTACH]) if ATTACH in options else None,
        client_id=_parse_identifier(options[_CLIENT_ID]) if _CLIENT_ID in options else None,
        sticky=_parse_key(options[STICKY]) if STICKY in options else None,
        identity=parse_identity(options),
        identity_args=parse_identity_args(options[IDENTITY_ARGS]) if IDENTITY_ARGS in options else None,
        egress=parse_egress(options),
        unknown=unknown,
    )


def with_spelling(endpoint: Mapping[str, str], arguments: Iterable[str]) -> dict[str, str]:
    """Return an endpoint's options with the names of arguments of plugins as they are spelt in `arguments`."""
    spelt = {f"{_ARGS}{name}".lower(): f"{_ARGS}{name}" for name in arguments}
    return {spelt.get(option.lower(), option): value for option, value in endpoint.items()}


def doubtful_arguments(
    network: Mapping[str, str], endpoint: Mapping[str, str], arguments: Iterable[str]
) -> tuple[str, ...]:
    """Return the options of an endpoint whose argument's name may have lost its upper case, and nothing restores it.

    Docker's command line converts the names of `driver-opt` to lower case (seen up to 29.7), and plugins compare them
    exactly.
    """
    known = {*_KNOWN_ARGS, *(name.lower() for name in arguments)}
    spelt = {option.lower() for option in network}
    return tuple(
        option
        for option, key, _ in _family(endpoint, _ARGS)
        if key == key.lower() != key.upper() and key not in known and option not in spelt
    )


def _with_known_spelling(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the known arguments of plugins in their original spelling."""
    spelt: dict[str, str] = {}
    for option, value in options.items():
        key = option.removeprefix(_ARGS)
        name = f"{_ARGS}{_KNOWN_ARGS.get(key.lower(), key)}" if option.startswith(_ARGS) else option
        if name in spelt:
            raise BadOption(name, "is given twice, in two spellings; leave one out")
        spelt[name] = value
    return spelt


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for option in sorted(options):
        if option in OPTIONS or option in NETWORK_OPTIONS or option in {IFNAME, SYSCTLS}:
            continue
        refuse_docker_option(option)
        if not any(option.startswith(family) and option != family for family in OPTION_FAMILIES):
            raise BadOption.unknown(option, (*OPTIONS, *OPTION_FAMILIES.values()))


def _family(options: Mapping[str, str], family: str) -> Iterator[tuple[str, str, str]]:
    """Yield the options of a family: the complete name, the user's part of it, the value."""
    for option, value in sorted(options.items()):
        if option.startswith(family):
            yield option, option.removeprefix(family), value


def _parse_attach(text: str) -> AttachOption:
    try:
        return AttachOption(text)
    except ValueError as exc:
        raise BadOption(ATTACH, f"{text!r} is not an attach mode; give {', '.join(AttachOption)}") from exc


def _parse_identifier(text: str) -> str:
    if _IDENTIFIER.fullmatch(text) is None:
        raise BadOption(_CLIENT_ID, "is not an identifier; give 1 to 128 printable ASCII characters")
    return text


def _parse_key(text: str) -> str:
    key = text.lower()
    if _KEY.fullmatch(key) is None:
        raise BadOption(
            STICKY,
            "is not a key; give 1 to 128 letters, digits, '_', '.' or '-', a letter or digit first, such as the "
            "container's name",
        )
    return key


def list_name(network: EngineNetwork, lists: Container[str]) -> str:
    """Return the name of the list of a Docker network among those that exist, or that it lacks.

    Without an option it has the network's own name, or that in the compose file.
    """
    if CONFIGURATION in network.options:
        return network.options[CONFIGURATION]
    names = filter(None, (network.name, network.compose_name))
    return next((name for name in names if name in lists), network.name)


def _parse_args(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for option, key, value in _family(options, _ARGS):
        if key == _IGNORE_UNKNOWN:
            raise BadOption(option, "is always set to 1; leave it out")
        try:
            check_argument(key, value)
        except InvalidParameter as exc:
            raise BadOption(option, str(exc)) from exc
        yield key, value


def _parse_capabilities(options: Mapping[str, str]) -> Iterator[tuple[str, JsonValue]]:
    for option, name, text in _family(options, _CAPABILITY):
        if name.lower() in _OTHER_WAYS:
            raise BadOption(option, f"cannot be set with this option; {_OTHER_WAYS[name.lower()]}")
        try:
            yield name, parse_json(text.encode())
        except JsonError as exc:
            raise BadOption(option, f"its value is not JSON ({exc}); a string needs quotes: '\"text\"'") from exc


def _parse_prefix(text: str) -> str:
    if _PREFIX.fullmatch(text) is None:
        raise BadOption(
            _IFNAME_PREFIX,
            f"{text!r} cannot be the prefix of a link name; give 1 to 13 letters, digits, '_' or '-', "
            "starting with a letter and not ending with a digit, such as lan",
        )
    return text
