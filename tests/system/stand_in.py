# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A program that replaces the daemon in tests of the lab."""

from typing import Final

__all__ = ["STAND_IN"]

STAND_IN: Final = """
import http.server, os, pathlib, signal, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = b'{"Implements": ["NetworkDriver"]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return "unix"
path = pathlib.Path("/run/docker/plugins/cni-bridge.sock")
path.parent.mkdir(parents=True, exist_ok=True)
path.unlink(missing_ok=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("stand-in", sys.argv[1:], os.environ.get("COLOUR"), flush=True)
socketserver.UnixStreamServer(str(path), Handler).serve_forever()
"""
"""It answers every call as a network driver that does nothing; ends with status 0 on SIGTERM."""
