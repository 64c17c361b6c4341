# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon tells about itself, at a Unix socket: it sends one JSON document to each client.

```
{"version": 1, "refusals": 12, "queries": {"noerror": 310, "nxdomain": 12},
 "names": [{"containerId": "5a4d…", "ifName": "eth0", "name": "api.example.com", "addresses": ["192.0.2.7"]}]}
```

`names` are those that a container has asked for and that have opened addresses. Only the daemon knows them; the kernel
knows what is open.
"""

import os
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cni_egress.records import IpAddress
from cni_invoker.documents.jsontypes import JsonError, JsonObject, as_object, get_list, get_str, get_strings, parse_json

__all__ = ["ask_daemon", "names_in_use", "open_status_socket"]

_NAME: Final = "status.sock"
_LIMIT_S: Final = 3.0
_RECEIVE_BYTES: Final = 1 << 16


def open_status_socket(directory: Path, owner: int) -> socket.socket:
    """Return the listening socket of the daemon, to which only root and its user can connect.

    Args:
        directory: The directory of the records.
        owner: The number of the daemon's user.

    Raises:
        OSError: It cannot be made.
    """
    path = directory / _NAME
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        os.chown(path, owner, -1)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def ask_daemon(directory: Path) -> JsonObject | None:
    """Return what the daemon tells; None if it does not run, or does not answer.

    Raises:
        PermissionError: Only root may ask.
    """
    received = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_LIMIT_S)
        try:
            sock.connect(str(directory / _NAME))
            while data := sock.recv(_RECEIVE_BYTES):
                received += data
            return as_object(parse_json(bytes(received)), "the status")
        except PermissionError:
            raise
        except (OSError, JsonError):
            return None


def names_in_use(status: JsonObject | None) -> dict[tuple[str, str], dict[str, frozenset[IpAddress]]]:
    """Return the names of each attachment with their addresses, by container ID and ifname.

    Args:
        status: What the daemon has told; None: nothing is known.
    """
    found: dict[tuple[str, str], dict[str, frozenset[IpAddress]]] = {}
    with suppress(JsonError, ValueError):
        for one in get_list(status or {"names": []}, "names"):
            use = as_object(one, "names")
            names = found.setdefault((get_str(use, "containerId"), get_str(use, "ifName")), {})
            name = get_str(use, "name")
            names[name] = names.get(name, frozenset()) | frozenset(map(ip_address, get_strings(use, "addresses")))
    return found
