# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The networks of a container as the engine shows them; pure.

The relevant part of one element of `GET /containers/json` (Docker Engine API 1.41 and later):

```
{"Names": ["/web"], "HostConfig": {"NetworkMode": "blue"},
 "NetworkSettings": {"Networks": {"blue": {"NetworkID": "6f9c…", "EndpointID": "77ad…"}, "red": {"NetworkID": ""}}}}
```

dockerd returns, without a lock, a copy that it makes whenever it stores the container. The key of a network is the name
that was used to connect the container, which may be the beginning of its ID. `NetworkID` is empty before the first
start. A network that a running container is being connected to is not included yet. One to which it could not be
connected stays, with the ID of an endpoint that has gone or none, and cannot be removed before the container is stopped
(moby `daemon/container_operations.go`, ConnectToNetwork).

Which containers can change the host's network, dockerd's `hostconfig.json` says. The kernel asks whether a process has
CAP_NET_ADMIN in the user namespace that owns a network namespace. A container is in the host's user namespace unless
dockerd remaps users. With CAP_NET_ADMIN it can then make and delete links in the host's network namespace, which the
container knows as the peer of its own link (linux `net/core/rtnetlink.c`, rtnl_get_net_ns_capable).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from typing import Final, Self

from cni_bridge_spec import JsonObject, find_object, find_str, get_object, get_str, get_strings
from cnm_bridge.core.engine_facts.network import EngineNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContainer:
    """A container as the engine lists it, without a lock.

    Attributes:
        image: The image, as it was given to `docker run`.
        state: E.g. `created`, `exited`, `running`; a container that is being started does not run yet.
        endpoint_ids: Its endpoints on all networks, as far as they exist.
        document: The whole element of `GET /containers/json`.
    """

    id: str
    name: str
    image: str
    state: str = ""
    labels: Mapping[str, str] = field(hash=False, default_factory=dict)
    endpoint_ids: frozenset[str] = frozenset()
    document: JsonObject = field(hash=False, default_factory=dict)

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read one element of `GET /containers/json`."""
        labels = find_object(document, "Labels") or {}
        networks = find_object(find_object(document, "NetworkSettings") or {}, "Networks") or {}
        endpoint_ids = (find_str(get_object(networks, name), "EndpointID") for name in networks)
        return cls(
            id=get_str(document, "Id"),
            name=_own_name(document),
            image=find_str(document, "Image") or "",
            state=find_str(document, "State") or "",
            labels={key: get_str(labels, key) for key in labels},
            endpoint_ids=frozenset(filter(None, endpoint_ids)),
            document=document,
        )

    @classmethod
    def from_stored(cls, document: JsonObject) -> Self:
        """Read who a container is in `config.v2.json`, which dockerd has stored; it has neither state nor networks."""
        config = get_object(document, "Config")
        labels = find_object(config, "Labels") or {}
        return cls(
            id=get_str(document, "ID"),
            name=get_str(document, "Name").removeprefix("/"),
            image=find_str(config, "Image") or "",
            labels={key: get_str(labels, key) for key in labels},
        )

    @property
    def networks(self) -> Mapping[str, str]:
        """The IDs of its networks, by the name that was used to connect it; "" before it is started first."""
        networks = find_object(find_object(self.document, "NetworkSettings") or {}, "Networks") or {}
        return {name: find_str(get_object(networks, name), "NetworkID") or "" for name in networks}

    @property
    def shares_sandbox(self) -> bool:
        """Whether it runs in the sandbox of another container (`--network container:`)."""
        mode = find_str(find_object(self.document, "HostConfig") or {}, "NetworkMode") or ""
        return mode.startswith(_OF_ANOTHER)

    def has_further_network(self, network_id: str) -> bool:
        """Return whether it has, or will have, a network besides the one that it is being joined to.

        A network whose ID is empty has not been joined yet; a single one is the network that is being joined. If the
        container is being connected while it runs, that network is not listed, so each with another ID is a further
        one.
        """
        networks = get_object(get_object(self.document, "NetworkSettings"), "Networks")
        ids = [find_str(get_object(networks, name), "NetworkID") or "" for name in networks]
        return len(ids) > 1 or any(other not in {"", network_id} for other in ids)

    @property
    def is_running(self) -> bool:
        """Whether it runs already: then it is being connected to a network, of which the list says nothing yet."""
        return self.state in _RUNNING

    @property
    def has_given_addresses(self) -> bool:
        """Whether addresses were given for one of its networks; which link-local ones, the list does not say."""
        networks = get_object(get_object(self.document, "NetworkSettings"), "Networks")
        return any(get_object(networks, name).get("IPAMConfig") is not None for name in networks)


def _own_name(document: JsonObject) -> str:
    """Return a container's name; the name of a link to it has two slashes."""
    return next((name[1:] for name in get_strings(document, "Names") if name.count("/") == 1), "")


_LINK_LOCAL_PREFIXES: Final = {4: 16, 6: 64}
"""moby, `CreateOptionIpam`."""
_RUNNING: Final = frozenset({"running", "paused"})
_OF_ANOTHER: Final = "container:"
_CONTAINER_ID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def has_name(container: JsonObject, name: str) -> bool:
    """Return whether a container is called `name`."""
    return f"/{name}" in get_strings(container, "Names")


def container_of_cgroup(cgroup: str) -> str | None:
    """Return the ID of the container whose processes are in a cgroup, None if it is not one of Docker's.

    The cgroup is the content of `/proc/<pid>/cgroup`, e.g. `0::/system.slice/docker-<ID>.scope` or `…/docker/<ID>`.
    """
    ids = _CONTAINER_ID.findall(cgroup)
    return ids[-1] if ids else None


def find_sandbox(container: JsonObject, endpoint_id: str) -> str | None:
    """Return the path of a container's sandbox as Join names it; None if the container does not have the endpoint.

    The container is the answer to `GET /containers/{id}/json`, whose `NetworkSettings` are
    `{"SandboxKey": "/var/run/docker/netns/…", "Networks": {"blue": {"EndpointID": "77ad…"}}}`.
    """
    settings = get_object(container, "NetworkSettings")
    networks = get_object(settings, "Networks")
    if all(find_str(get_object(networks, name), "EndpointID") != endpoint_id for name in networks):
        return None
    return find_str(settings, "SandboxKey") or None


def link_local_addresses(
    stored: JsonObject, network_id: str, network: str | None
) -> tuple[IPv4Interface | IPv6Interface, ...]:
    """Return the addresses of `--link-local-ip` of a container on a network, with the prefixes that Docker gives them.

    `stored` is what dockerd has stored about the container, whose `NetworkSettings` are
    `{"Networks": {"blue": {"NetworkID": "", "IPAMConfig": {"LinkLocalIPs": ["169.254.7.1"]}}}}`. `NetworkID` is empty
    before the first start, and that of a removed network if `blue` was made again.
    """
    networks = find_object(find_object(stored, "NetworkSettings") or {}, "Networks") or {}
    entries = {name: get_object(networks, name) for name in networks}
    joined = [entry for entry in entries.values() if find_str(entry, "NetworkID") == network_id]
    named = [entry for name, entry in entries.items() if name == network or len(entries) == 1]
    addresses = get_strings(find_object((joined or named or [{}])[0], "IPAMConfig") or {}, "LinkLocalIPs")
    return tuple(ip_interface(f"{text}/{_LINK_LOCAL_PREFIXES[ip_address(text).version]}") for text in addresses)


def has_other_network(container: JsonObject, network: EngineNetwork) -> bool:
    """Return whether a container has a network besides `network`."""
    return not all(_are_network(container, network))


def is_only_network(network: EngineNetwork, containers: Iterable[EngineContainer]) -> bool:
    """Return whether some of the containers are being started on a network, and none of those has another network.

    The containers have processes, one of which may be that of a container that is being started.
    """
    waiting = (container.document for container in containers if not container.is_running)
    answers = (tuple(_are_network(document, network)) for document in waiting)
    starting = [answer for answer in answers if any(answer)]
    return bool(starting) and all(map(all, starting))


def _are_network(container: JsonObject, network: EngineNetwork) -> Iterator[bool]:
    """Yield for each network of a container whether it is `network`."""
    networks = get_object(get_object(container, "NetworkSettings"), "Networks")
    for name in networks:
        has_its_name = name == network.name or network.id.startswith(name)
        yield has_its_name or find_str(get_object(networks, name), "NetworkID") == network.id


_REACHING: Final = frozenset({"NET_ADMIN", "SYS_ADMIN", "SYS_MODULE"})
"""NET_ADMIN, and those with which a process can run code in the kernel or change other processes."""
_ALL: Final = "ALL"
_HOST: Final = "host"


def find_privileges(host_config: JsonObject, *, remaps_users: bool) -> tuple[str, ...]:
    """Return the options of `docker run` with which a container can change the host's network; none if it cannot.

    moby `oci/caps/utils.go` (TweakCapabilities): a capability that is both added and dropped stays, except after `ALL`.
    `host_config` is `{"Privileged": false, "CapAdd": ["CAP_NET_ADMIN"], "CapDrop": null, "UsernsMode": ""}`.
    """
    if remaps_users and find_str(host_config, "UsernsMode") != _HOST:
        return ()
    if host_config.get("Privileged"):
        return ("--privileged",)
    added, dropped = (set(_names(get_strings(host_config, key))) for key in ("CapAdd", "CapDrop"))
    if _ALL in added:
        return ("--cap-add ALL",) if _REACHING - dropped else ()
    return tuple(f"--cap-add {name}" for name in sorted(_REACHING & added))


def _names(capabilities: Iterable[str]) -> Iterable[str]:
    return (name.upper().removeprefix("CAP_") for name in capabilities)
