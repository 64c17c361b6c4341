# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The requests to Docker's API for operations; pure."""

from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from tests.soak.lists import OF_DOCKER, docker_pool, is_docker_choice
from tests.soak.operations import Kind, Operation

DRIVER: Final = "cni-bridge"

SERVER: Final = (b"httpd", b"-f", b"-p", b"80", b"-h", b"/tmp")
"""The program of containers: port 80 serves the container's name as /name."""

PARTNER: Final = (b"sleep", b"86400")
"""The program of containers that share the network namespace of others."""

_SERVE: Final = f'echo "$0" > /tmp/name; exec {b" ".join(SERVER).decode()}'


def call_of(operation: Operation) -> tuple[str, str, JsonValue]:
    """Return method, path and body of the request for an operation."""
    subject, network = operation.writes, operation.network
    body: JsonObject
    match operation.kind:
        case Kind.CREATE:
            body = _new_partner(operation) if operation.partner else _new_container(operation)
            return "POST", f"/containers/create?name={subject}", body
        case Kind.REMOVE:
            return "DELETE", f"/containers/{subject}?force=1&v=1", None
        case Kind.CONNECT | Kind.DISCONNECT:
            return "POST", f"/networks/{network}/{operation.kind.value}", {"Container": subject}
        case Kind.CREATE_NETWORK:
            body = {"Name": subject, "CheckDuplicate": True, **_driver(operation.list or "")}
            return "POST", "/networks/create", body
        case Kind.REMOVE_NETWORK:
            return "DELETE", f"/networks/{subject}", None
    query = "" if operation.kind in (Kind.START, Kind.KILL) else "?t=5"
    return "POST", f"/containers/{subject}/{operation.kind.value}{query}", None


def _driver(list_name: str) -> JsonObject:
    """Return the drivers of a network and its addresses, with their options."""
    pool = docker_pool(list_name)
    config: JsonObject = {} if pool is None else {"Config": [{"Subnet": pool.subnet, "Gateway": pool.gateway}]}
    of_docker = OF_DOCKER.get(list_name)
    if of_docker is None:
        ipam: JsonObject = config or {"Driver": "null"}
        return {"Driver": DRIVER, "IPAM": ipam, "Options": {"cni.network": list_name}}
    ipam = {"Driver": DRIVER, "Options": {"cni.ipam": list_name}, **config}
    return {"Driver": of_docker.name, "IPAM": ipam, "Options": {**of_docker.options}}


def _endpoint(operation: Operation) -> JsonObject:
    """Return what a container requests of its first network: an address of Docker's IPAM or of a plugin, or a MAC."""
    address = operation.address
    mac: JsonObject = {"MacAddress": operation.mac} if operation.mac else {}
    if address is None:
        return mac
    if is_docker_choice(address):
        return {**mac, "IPAMConfig": {"IPv4Address": address}}
    return {**mac, "DriverOpts": {"cni.ips": address}}


def _new_partner(operation: Operation) -> JsonObject:
    return {
        "Image": "busybox",
        "Cmd": [word.decode() for word in PARTNER],
        "StopSignal": "SIGKILL",
        "HostConfig": {"NetworkMode": f"container:{operation.partner}", "RestartPolicy": {"Name": "no"}},
    }


def _new_container(operation: Operation) -> JsonObject:
    assert operation.network is not None
    # not `unless-stopped`: 20.10 treats containers that it ends after a crash of dockerd as stopped by the user
    policy = "always" if operation.restarts else "no"
    return {
        "Image": "busybox",
        "Cmd": ["sh", "-c", _SERVE, operation.writes],
        "StopSignal": "SIGKILL",  # process 1 ignores other signals, and dockerd would wait
        "ExposedPorts": {"80/tcp": {}},
        **({"MacAddress": operation.mac} if operation.mac else {}),  # engines before 25 know only this one
        "NetworkingConfig": {"EndpointsConfig": {operation.network: _endpoint(operation)}},
        "HostConfig": {
            "NetworkMode": operation.network,
            "RestartPolicy": {"Name": policy},
            "PortBindings": {"80/tcp": [{"HostPort": str(operation.port)}]} if operation.port else {},
        },
    }
