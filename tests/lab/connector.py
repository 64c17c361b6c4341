# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`connector.py`: connects to Unix sockets for a process outside the lab, and passes the connections on to it.

Its stdin is a socket: each message is the path of a server; the reply is `0` with the connection, or an errno.
"""

import socket
import sys

__all__: list[str] = []

_LONGEST_PATH = 4096


def main() -> None:
    """Serve until the other end is closed."""
    with socket.socket(fileno=sys.stdin.fileno()) as orders:
        while path := orders.recv(_LONGEST_PATH):
            with socket.socket(socket.AF_UNIX) as connection:
                try:
                    connection.connect(path)
                except OSError as exc:
                    orders.send(str(exc.errno).encode())
                else:
                    socket.send_fds(orders, [b"0"], [connection.fileno()])


if __name__ == "__main__":
    main()
