# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`forwarder.py FROM TO`: accepts connections on a Unix socket and forwards them to another one.

It runs in the lab, so that the daemon finds its caller among the processes that it sees, like dockerd. Otherwise it
does not trust what it sees of processes.
"""

import socket
import socketserver
import sys
import threading

_CHUNK = 65536


class _Forward(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as target:
            try:
                target.connect(sys.argv[2])
            except OSError:  # the daemon is dead, and closing the connection says so
                return
            back = threading.Thread(target=_copy, args=(target, self.request))
            back.start()
            _copy(self.request, target)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


if __name__ == "__main__":
    with socketserver.ThreadingUnixStreamServer(sys.argv[1], _Forward) as server:
        server.serve_forever()
