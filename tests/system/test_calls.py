# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket, called as dockerd calls it: repeated calls, unknown IDs, and which users may connect."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cni_bridge_spec import JsonValue, get_object, get_str
from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.core.settings import Settings
from tests.lab import DAEMON_COMMAND, PLUGIN_SOCKET, Lab
from tests.lab.unix_http import request
from tests.system.calls import (
    BOTH,
    ENDPOINT,
    NETWORK,
    SANDBOX,
    call,
    create_endpoint,
    create_network,
    delete_endpoint,
)
from tests.system.scene import PASS, Scene, bridge


def test_every_call_may_be_repeated(scene: Scene) -> None:
    """A repeated call with the same ID has the same answer and no further effect."""
    lab = scene.lab
    configuration = scene.configure(bridge(scene.subnet(), ipv6=True))
    before = lab.state()
    assert create_network(lab, configuration) == {}
    assert create_network(lab, configuration) == {}
    created = create_endpoint(lab)
    after_create = lab.state()
    assert get_str(get_object(created, "Interface"), "Address")
    assert create_endpoint(lab) == created
    assert lab.state() == after_create
    assert call(lab, "Leave", BOTH) == {}  # before any Join
    join = {**BOTH, "SandboxKey": SANDBOX, "Options": {}}
    joined = call(lab, "Join", join)
    assert get_str(get_object(joined, "InterfaceName"), "SrcName") == f"cnib{ENDPOINT[:11]}"
    assert call(lab, "Join", join) == joined
    for _ in range(3):
        assert call(lab, "Leave", BOTH) == {}
    for _ in range(2):
        assert call(lab, "DeleteEndpoint", BOTH) == {}
    for _ in range(2):
        assert call(lab, "DeleteNetwork", {"NetworkID": NETWORK}) == {}
    assert lab.wait_clean(before) == ""


def test_a_repetition_with_an_empty_body_changes_nothing(scene: Scene) -> None:
    """Docker repeats a call whose connection broke without its body: this is refused."""
    lab = scene.lab
    create_network(lab, scene.configure(bridge(scene.subnet())))
    before = lab.state()
    for method in ("CreateEndpoint", "Join", "Leave", "DeleteEndpoint", "DeleteNetwork", "CreateNetwork"):
        assert "no body" in get_str(call(lab, method), "Err")
    assert lab.wait_clean(before) == ""
    assert get_object(create_endpoint(lab), "Interface")
    delete_endpoint(lab)
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def test_two_concurrent_creates_of_one_endpoint(scene: Scene) -> None:
    """Plugins run once, and both calls have the same answer."""
    lab = scene.lab
    scene.plugin("slow", f'{{ [ "$CNI_COMMAND" = ADD ] && sleep 0.5; }}; {COUNT}; {PASS}')
    create_network(lab, scene.configure([*bridge(scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda _: create_endpoint(lab), range(2))
    assert get_object(first, "Interface") == get_object(second, "Interface")
    assert lab.read("/run/count").split() == ["ADD"]
    lab.remove("/run/count")
    delete_endpoint(lab)
    assert lab.wait_clean(before) == ""
    lab.remove("/run/count")
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def test_delete_during_create(scene: Scene) -> None:
    """A DeleteEndpoint that arrives while the plugins run waits for them, and then everything is undone."""
    lab = scene.lab
    scene.plugin("slow", f'[ "$CNI_COMMAND" = ADD ] && {{ touch /run/adding; sleep 0.5; }}; {PASS}')
    create_network(lab, scene.configure([*bridge(scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    with ThreadPoolExecutor() as threads:
        created = threads.submit(create_endpoint, lab)
        lab.run("sh", "-c", "for i in $(seq 100); do [ -e /run/adding ] && exit 0; sleep 0.05; done; exit 1")
        delete_endpoint(lab)
        assert get_object(created.result(), "Interface")
    lab.remove("/run/adding")
    assert lab.wait_clean(before) == ""
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


COUNT = 'echo "$CNI_COMMAND" >>/run/count'


def test_only_root_can_connect(lab: Lab) -> None:
    """The socket's permissions refuse other users of the host."""
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({PLUGIN_SOCKET!r})"
    done: subprocess.CompletedProcess[str] = lab.run(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-c", code, check=False
    )
    assert "PermissionError" in done.stderr


def test_a_caller_in_another_pid_namespace(fresh_lab: Lab) -> None:
    """A caller whose process ID the daemon cannot see is logged once; dockerd, in the same namespace, is not."""
    lab = fresh_lab
    assert lab.daemon is not None
    lab.run("docker", "network", "create", "-d", "cni-bridge", "unknown", check=False)
    assert "rpc.refused" in lab.daemon.log()
    assert "processes.hidden" not in lab.daemon.log()
    for _ in range(2):
        request(lab.path(PLUGIN_SOCKET), "POST", "/NetworkDriver.Join", {**BOTH, "SandboxKey": "/run/none"})
    assert lab.daemon.log().count("processes.hidden") == 1


@pytest.mark.long
def test_a_daemon_in_another_pid_namespace(fresh_lab: Lab) -> None:
    """It says before its first clean-up that it does not see containers, where it runs."""
    lab = fresh_lab
    apart = ("unshare", "--pid", "--fork", "--kill-child")
    lab.stop_daemon()
    daemon = lab.start_daemon(command=[*apart, sys.executable, "-m", "cnm_bridge", "serve"])
    assert daemon.log().index("processes.hidden") < daemon.log().index("daemon.ready")


_CALLS = """
import json, os, pathlib, sys
from tests.lab.unix_http import request
print(os.getpid())
for method, body in json.loads(sys.argv[2]):
    print(request(pathlib.Path(sys.argv[1]), "POST", f"/NetworkDriver.{method}", body))
"""


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_the_caller_of_an_endpoint_is_stored(private_scene: Scene, processes: int) -> None:
    """The caller is stored if CreateEndpoint and Join came from the same process."""
    lab = private_scene.lab
    assert lab.daemon is not None
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    calls: list[JsonValue] = [
        ["CreateEndpoint", {**BOTH, "Interface": interface, "Options": {}}],
        ["Join", {**BOTH, "SandboxKey": SANDBOX, "Options": {}}],
    ]
    create_network(lab, private_scene.configure(bridge(private_scene.subnet())))
    printed = [
        lab.run(sys.executable, "-c", _CALLS, PLUGIN_SOCKET, json.dumps(part)).stdout.splitlines()
        for part in ([calls] if processes == 1 else [[one] for one in calls])
    ]
    assert "'InterfaceName'" in printed[-1][-1]
    lab.stop_daemon()
    store = Store.open(lab.path(str(Settings().state_dir)))
    caller = store.get_endpoint(EndpointId(ENDPOINT)).caller
    store.close()
    assert (caller.pid if caller else None) == (int(printed[0][0]) if processes == 1 else None)
    lab.start_daemon()
    delete_endpoint(lab)
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def test_a_second_daemon_is_refused(lab: Lab) -> None:
    """A second daemon on the same run or state directory does not start; the first one keeps running."""
    sockets = ("--socket", "/run/other.sock", "--admin-socket", "/run/other-admin.sock")
    for options, reason in (
        (("--socket", PLUGIN_SOCKET), "is served by another process"),
        ((), "is used by another"),
        (("--run-dir", "/run/other"), "in use by process"),
    ):
        done = lab.run(*DAEMON_COMMAND, *sockets, *options, check=False)
        assert (done.returncode, reason in done.stderr) == (1, True), done.stderr
    lab.remove("/run/other")
    assert json.dumps(call(lab, "EndpointOperInfo", BOTH))
