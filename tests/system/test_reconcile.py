# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker has forgotten is torn down, what we have forgotten is rebuilt, and what is in use is left alone."""

import json
import signal
import sys

from spec import JsonObject, as_object, get_object
from tests.lab import PLUGIN_SOCKET, Lab
from tests.lab.leftovers import leftovers
from tests.lab.unix_http import request
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, bridge, reaches, wait_said

OFTEN = ("--reconcile-interval", "1")
ENDPOINT = "e" * 64
PASS = """python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin).get("prevResult")))'"""

STRANGER = """
import json, socketserver, sys
from http.server import BaseHTTPRequestHandler
class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        if "/networks/" in self.path: return self.answer(404, {"message": "no such network"})
        if "/events" in self.path: self.answer(200, {}); return self.rfile.read()
        return self.answer(200, {"ID": "a stranger", "ApiVersion": "1.41", "Version": "20.10.24"})
    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def address_string(self): return "client"
    def log_message(self, *words): print(self.path, flush=True)
socketserver.ThreadingUnixStreamServer("/run/stranger.sock", Engine).serve_forever()
"""


def restart_daemon(lab: Lab, *options: str) -> None:
    """Start the daemon again with options."""
    lab.stop_daemon()
    lab.start_daemon(*options)


def forget_state(lab: Lab) -> None:
    """Lose everything that the daemon has stored."""
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")


def create_unknown_to_docker(lab: Lab, network: str) -> None:
    """Make an endpoint that Docker never hears of."""
    network_id = lab.docker("network", "inspect", "-f", "{{.Id}}", network)
    body: JsonObject = {"NetworkID": network_id, "EndpointID": ENDPOINT, "Interface": {}, "Options": {}}
    _, answer = request(lab.path(PLUGIN_SOCKET), "POST", "/NetworkDriver.CreateEndpoint", body)
    assert get_object(as_object(answer, "answer"), "Interface")


def test_endpoints_lost_in_a_crash_of_docker(private_scene: Scene) -> None:
    """Docker ends the containers of its former life and tells nobody: addresses, rules and links go all the same."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    first, second = private_scene.run(network), private_scene.run(network)
    lab.restart_dockerd(signal.SIGKILL)
    left = lab.wait_clean(before, timeout_s=20).splitlines()
    assert left == [f"containers: {name}" for name in sorted((first.name, second.name))]
    lab.docker("start", first.name)
    assert reaches(first, subnet.gateway)
    lab.docker("rm", "-f", first.name, second.name)
    assert lab.wait_clean(before) == ""


def test_containers_that_outlive_docker(private_scene: Scene) -> None:
    """With live-restore the containers run on; they keep their network, and are removed without a trace later."""
    lab = private_scene.lab
    lab.stop_dockerd()
    lab.start_dockerd("--live-restore")
    restart_daemon(lab, *OFTEN)
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    made = lab.state()
    for how in (signal.SIGKILL, signal.SIGTERM):
        lab.restart_dockerd(how)
        wait_reconciled(lab)
        assert leftovers(lab.state(), made) == ""  # what the container has, it has still
        assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


def test_an_endpoint_whose_answer_was_lost(private_scene: Scene) -> None:
    """Docker does not know it, and never deletes it."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    restart_daemon(lab, *OFTEN)
    before = lab.state()
    create_unknown_to_docker(lab, network)
    assert "reservation" in lab.wait_clean(before, timeout_s=0)
    assert lab.wait_clean(before, timeout_s=20) == ""


def test_a_network_removed_while_the_daemon_is_away_for_long(private_scene: Scene) -> None:
    """Docker gives up after a quarter of a minute; the daemon finds it when it is back."""
    lab = private_scene.lab
    kept, _ = private_scene.bridge_network()
    network, _ = private_scene.bridge_network()
    network_id = lab.docker("network", "inspect", "-f", "{{.Id}}", network)
    lab.stop_daemon(signal.SIGKILL)
    lab.docker("network", "rm", network)
    lab.start_daemon(*OFTEN)
    assert network_id in wait_said(lab, "network.forgotten")
    private_scene.run(kept)


def test_a_state_that_was_lost(private_scene: Scene) -> None:
    """Networks and running containers are recognised; nothing of them stays when they are removed."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    by_name = private_scene.network(None, name=private_scene.configure(bridge(private_scene.subnet())))
    before = lab.state()
    first, other = private_scene.run(network), private_scene.run(by_name)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon(*OFTEN)
    second = private_scene.run(network)
    assert reaches(second, subnet.gateway)
    wait_said(lab, f'"container": "{other.name}"')
    lab.docker("rm", "-f", first.name, second.name, other.name)
    assert lab.wait_clean(before) == ""


def test_a_state_that_was_lost_and_a_container_that_stops_first(private_scene: Scene) -> None:
    """The call that takes a container's link back is the first that the new daemon gets."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon()
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


def test_another_engine_judges_nothing(private_scene: Scene) -> None:
    """An engine that knows none of our networks is not the one that calls us, whatever it says it has not."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network()
    container = private_scene.run(network)
    made = lab.state()
    stranger = lab.spawn(sys.executable, "-c", STRANGER)
    restart_daemon(lab, *OFTEN, "--docker-host", "unix:///run/stranger.sock")
    wait_said(lab, "engine.knows_no_network")
    wait_reconciled(lab)
    assert leftovers(lab.state(), made) == ""
    assert reaches(container, subnet.gateway)
    assert lab.daemon is not None
    assert "endpoint.forgotten" not in lab.daemon.log()
    assert json.loads(lab.docker("network", "inspect", network))[0]["Containers"]
    restart_daemon(lab)
    stranger.close()
    lab.remove("/run/stranger.sock")


def test_what_is_left_of_an_endpoint_whose_record_was_lost(private_scene: Scene) -> None:
    """Its staging namespace and its link tell whose it was; addresses and rules go with them."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network(ipv6=True)
    neighbour = private_scene.run(network)
    before = lab.state()
    create_unknown_to_docker(lab, network)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon(*OFTEN)
    second = private_scene.run(network)  # the first call tells which engine is Docker's
    lab.docker("rm", "-f", second.name)
    assert lab.wait_clean(before, timeout_s=30) == ""
    wait_said(lab, f'"container": "{neighbour.name}"')


def test_an_orphan_that_may_be_anybodys(private_scene: Scene) -> None:
    """A reservation of an unknown container is said, with its file, and stays."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network()
    first = private_scene.run(network)
    (directory,) = {path.rpartition("/")[0] for path in lab.state().reservations if subnet.ipv4[:-4] in path}
    orphan = f"{directory}/{subnet.ipv4.replace('0/24', '77')}"
    lab.write(orphan, "somebody\r\neth0")
    restart_daemon(lab, *OFTEN)
    assert orphan in wait_said(lab, "orphan.found")
    lab.docker("rm", "-f", first.name)
    assert lab.read(orphan).split() == ["somebody", "eth0"]
    lab.remove(orphan)


def test_an_empty_reservation(private_scene: Scene) -> None:
    """A host-local that was killed before it wrote the file has reserved the address for no container: it is free."""
    lab = private_scene.lab
    restart_daemon(lab, "--reconcile-interval", "3600")
    subnet = private_scene.subnet()
    main, *others = bridge(subnet)
    address = subnet.ipv4.replace("0/24", "9")
    ranges: JsonObject = {"subnet": subnet.ipv4, "rangeStart": address, "rangeEnd": address}
    name = private_scene.configure([{**main, "ipam": {"type": "host-local", "ranges": [[ranges]]}}, *others])
    network = private_scene.network(name)
    lab.docker("rm", "-f", private_scene.run(network).name)
    file = f"/var/lib/cni/networks/{name}/{address}"
    lab.write(file, "")
    assert "no IP addresses available" in private_scene.run_refusal(network)
    restart_daemon(lab, *OFTEN)
    assert file in wait_said(lab, "reservation.unwritten")
    private_scene.run(network)
    assert lab.read(file)


def test_status_of_the_daemon(private_scene: Scene) -> None:
    """What is attached is shown, and what is owed with its reason; the exit status tells whether all is well."""
    lab = private_scene.lab
    private_scene.plugin("moody", f'[ "$CNI_COMMAND" = DEL ] && [ -e /run/bad-mood ] && exit 1; {PASS}')
    subnet = private_scene.subnet()
    network = private_scene.network(private_scene.configure([*bridge(subnet), {"type": "moody"}]))
    before = lab.state()
    container = private_scene.run(network)
    status = (sys.executable, "-m", "cnm_bridge", "status")
    well = lab.run(*status).stdout
    assert "engine  up" in well
    assert subnet.ipv4[: -len("0/24")] in well
    lab.write("/run/bad-mood", "")
    lab.docker("rm", "-f", container.name)
    owing = lab.run(*status, check=False)
    assert owing.returncode == 2
    assert "moody" in owing.stdout.partition("PENDING TEARDOWN")[2]
    lab.remove("/run/bad-mood")
    assert lab.wait_clean(before) == ""
    assert "ENDPOINT" in lab.run(*status).stdout
