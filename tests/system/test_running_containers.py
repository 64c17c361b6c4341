# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container that runs keeps its network, whatever the records and the engine say of it."""

import json
import sys

import pytest

from tests.lab import Lab
from tests.lab.leftovers import leftovers
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, reaches, wait_said

OFTEN = ("--reconcile-interval", "1")
BACKUP = "/run/backup.json"

FORGETFUL = """
import http.client, json, socket, socketserver
from http.server import BaseHTTPRequestHandler
class Docker(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/run/docker.sock")
class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        if "/events" in self.path:
            self.send_response(200); self.end_headers(); self.rfile.read(); return
        docker = Docker("docker")
        docker.request("GET", self.path)
        answer = docker.getresponse()
        document = json.loads(answer.read())
        if "/networks/" in self.path and "Containers" in document: document["Containers"] = {}
        body = json.dumps(document).encode()
        self.send_response(answer.status); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def address_string(self): return "client"
    def log_message(self, *words): print(self.path, flush=True)
socketserver.ThreadingUnixStreamServer("/run/forgetful.sock", Engine).serve_forever()
"""
"""Docker's own engine, but no network has an endpoint: so dockerd answers when it cannot read its own store."""


def change_records(lab: Lab, **changes: object) -> None:
    """Give the stored endpoints other values, by export and import; the daemon is stopped."""
    cli = (sys.executable, "-m", "cnm_bridge", "state")
    lab.run(*cli, "export", BACKUP)
    document = json.loads(lab.read(BACKUP))
    document["endpoints"] = [{**endpoint, **changes} for endpoint in document["endpoints"]]
    lab.write(BACKUP, document)
    lab.run(*cli, "import", "--replace", BACKUP)
    lab.remove(BACKUP)


@pytest.mark.parametrize(
    ("older", "said"),
    [
        ({"phase": "pending", "snapshot": None, "sandboxKey": None}, "endpoint.outdated"),
        ({"phase": "ready", "sandboxKey": None}, "endpoint.in_use"),
    ],
    ids=["being created", "before its join"],
)
def test_a_record_that_was_not_the_latest(private_scene: Scene, older: dict[str, object], said: str) -> None:
    """What was written last was lost, or an older export came back: what runs is not undone, and goes in the end."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    made = lab.state()
    lab.stop_daemon()
    change_records(lab, **older)
    lab.start_daemon(*OFTEN)
    wait_said(lab, said)
    other = private_scene.run(network)  # which would get the same address
    wait_reconciled(lab)
    assert leftovers(lab.state(), made) == ""  # nothing of the first was removed
    assert reaches(container, subnet.gateway)
    assert reaches(other, subnet.gateway)
    lab.docker("rm", "-f", container.name, other.name)
    assert lab.wait_clean(before, timeout_s=20) == ""


def test_an_engine_that_tells_of_no_endpoint(private_scene: Scene) -> None:
    """Its identity is the right one, and its answer is not: the kernel knows better."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    made = lab.state()
    forgetful = lab.spawn(sys.executable, "-c", FORGETFUL)
    lab.stop_daemon()
    lab.start_daemon(*OFTEN, "--docker-host", "unix:///run/forgetful.sock")
    wait_said(lab, "endpoint.in_use")
    wait_reconciled(lab)
    assert leftovers(lab.state(), made) == ""
    assert reaches(container, subnet.gateway)
    assert lab.daemon is not None
    assert "endpoint.forgotten" not in lab.daemon.log()
    assert lab.daemon.log().count("endpoint.in_use") == 1
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before, timeout_s=20) == ""
    lab.stop_daemon()
    lab.start_daemon()
    forgetful.close()
    lab.remove("/run/forgetful.sock")
