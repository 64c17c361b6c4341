# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The requests to Docker's API that operations are; pure."""

from typing import Final

from spec import JsonObject, JsonValue
from tests.soak.lists import docker_pool, is_docker_choice
from tests.soak.operations import Kind, Operation

__all__ = ["DRIVER", "SERVER", "call_of"]

DRIVER: Final = "cni-bridge"

SERVER: Final = (b"httpd", b"-f", b"-p", b"80", b"-h", b"/tmp")
"""What containers run: who asks their port 80 for /name is told it."""

_SERVE: Final = f'echo "$0" > /tmp/name; exec {b" ".join(SERVER).decode()}'


def call_of(operation: Operation) -> tuple[str, str, JsonValue]:
    """Give method, path and body of the one request that an operation is."""
    subject, network = operation.writes, operation.network
    match operation.kind:
        case Kind.CREATE:
            return "POST", f"/containers/create?name={subject}", _new_container(operation)
        case Kind.REMOVE:
            return "DELETE", f"/containers/{subject}?force=1&v=1", None
        case Kind.CONNECT | Kind.DISCONNECT:
            return "POST", f"/networks/{network}/{operation.kind.value}", {"Container": subject}
        case Kind.CREATE_NETWORK:
            body: JsonObject = {
                "Name": subject,
                "CheckDuplicate": True,
                "Driver": DRIVER,
                "IPAM": _ipam(operation.list),
                "Options": {"cni.network": operation.list},
            }
            return "POST", "/networks/create", body
        case Kind.REMOVE_NETWORK:
            return "DELETE", f"/networks/{subject}", None
    query = "" if operation.kind in (Kind.START, Kind.KILL) else "?t=5"
    return "POST", f"/containers/{subject}/{operation.kind.value}{query}", None


def _ipam(list_name: str | None) -> JsonObject:
    pool = docker_pool(list_name or "")
    return {"Driver": "null"} if pool is None else {"Config": [{"Subnet": pool.subnet, "Gateway": pool.gateway}]}


def _endpoint(address: str | None) -> JsonObject:
    """Give what a container asks of its first network: an address of Docker's IPAM, one of the plugins, or nothing."""
    if address is None:
        return {}
    return (
        {"IPAMConfig": {"IPv4Address": address}} if is_docker_choice(address) else {"DriverOpts": {"cni.ips": address}}
    )


def _new_container(operation: Operation) -> JsonObject:
    assert operation.network is not None
    # not `unless-stopped`: what 20.10 ends because its former life was killed counts as stopped by the user
    policy = "always" if operation.restarts else "no"
    return {
        "Image": "busybox",
        "Cmd": ["sh", "-c", _SERVE, operation.writes],
        "StopSignal": "SIGKILL",  # process 1 ignores others, and dockerd would wait
        "ExposedPorts": {"80/tcp": {}},
        "NetworkingConfig": {"EndpointsConfig": {operation.network: _endpoint(operation.address)}},
        "HostConfig": {
            "NetworkMode": operation.network,
            "RestartPolicy": {"Name": policy},
            "PortBindings": {"80/tcp": [{"HostPort": str(operation.port)}]} if operation.port else {},
        },
    }
