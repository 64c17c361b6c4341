# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The operator's commands on a real engine. A test makes its container once, and looks at it with many commands."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from cni_bridge_spec import JsonObject, get_object, get_objects, get_str, get_strings, load_validator
from tests.lab import Engine, Lab, wait_until
from tests.system.calls import ask_status
from tests.system.plugin_lists import BANDWIDTH, PORTMAP
from tests.system.scene import PASS, PREV_RESULT, Scene, Subnet, bridge, ptp, wait_logged

LAST = ("--last", "5000", "--no-follow")


def command(lab: Lab, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run cni-bridge, whatever its exit status is."""
    return lab.run("cni-bridge", *arguments, check=False)


def inspect(lab: Lab, name: str) -> JsonObject:
    """Return what `cni-bridge inspect` shows of a container with one endpoint."""
    (document,) = json.loads(lab.run("cni-bridge", "inspect", "--json", name).stdout)
    return load_validator("admin/endpoint")(document)


@pytest.mark.smoke
def test_what_an_operator_sees(scene: Scene) -> None:
    """Lists have names and ports, which no engine shows; a container is found by name, ID and address."""
    lab, subnet = scene.lab, scene.subnet()
    configuration = scene.configure([*bridge(subnet), PORTMAP])
    network = scene.network(configuration)
    name = scene.run(network, "-p", "8601:80").name

    lines = command(lab, "ls").stdout.splitlines()
    assert any({name, "busybox", network, "8601->80/tcp", "joined"} <= {*line.split()} for line in lines)
    listed = json.loads(command(lab, "ls", "--json", network).stdout)
    (entry,) = get_objects(listed, "endpoints")
    load_validator("admin/endpoints")(listed)
    assert get_str(get_object(entry, "container"), "name") == name
    assert network in command(lab, "ls", "--networks").stdout
    branch, leaf = command(lab, "ls", "--tree", network).stdout.splitlines()[1:]
    assert branch == f"└── {subnet.bridge}  network {network}"
    assert leaf.split() == ["└──", name, *get_strings(entry, "addresses"), "8601->80/tcp"]

    described = inspect(lab, name)
    (address,) = get_strings(described, "addresses")
    by_id, by_address = inspect(lab, get_str(described, "id")[:20]), inspect(lab, address.partition("/")[0])
    assert described["id"] == by_id["id"] == by_address["id"]
    plugins = get_objects(described, "plugins")
    assert [plugin["type"] for plugin in plugins[-3:]] == ["bridge", "firewall", "portmap"]  # hybrid: host-local first
    for plugin in plugins:
        assert get_object(get_object(plugin, "executions"), "ADD")["outcome"] == "success"
    owned = get_object(described, "owned")
    assert get_strings(owned, "reservations") == (f"/var/lib/cni/networks/{configuration}/{address.partition('/')[0]}",)
    rules = "\n".join(get_strings(owned, "rules"))
    for part in ("CNI-HOSTPORT-DNAT", "POSTROUTING", "CNI-FORWARD"):
        assert f"-A {part} " in rules
    assert "portmap" in command(lab, "inspect", name).stdout

    events = [json.loads(line) for line in command(lab, "events", *LAST, "--json").stdout.splitlines()]
    mine = [event for event in events if event.get("endpointId") == described["id"]]
    assert {"NetworkDriver.CreateEndpoint", "NetworkDriver.Join"} <= {event.get("rpc") for event in mine}
    assert [event["phase"] for event in mine if event["event"] == "endpoint.phase"][-1] == "joined"
    assert ("portmap", "ADD") in {(event.get("plugin"), event.get("verb")) for event in events}
    exported = command(lab, "state", "export").stdout
    assert (described["id"], "joined") in {(one["id"], one["phase"]) for one in json.loads(exported)["endpoints"]}
    lab.write("/run/state.json", exported)
    refused = command(lab, "state", "import", "--replace", "/run/state.json")
    assert (refused.returncode, "stop it first" in refused.stderr) == (1, True)
    lab.remove("/run/state.json")

    fine = command(lab, "cleanup", "--run", get_str(described, "id")[:20])
    assert (fine.returncode, "is neither a failed teardown" in fine.stderr) == (2, True)
    misspelt = command(lab, "inspect", f"{name}x")
    assert (misspelt.returncode, f"did you mean {name}?" in misspelt.stderr) == (2, True)
    nameless = command(lab, "ls", "--docker-host", "unix:///nowhere.sock")
    assert (nameless.returncode, "names of containers are not known" in nameless.stderr) == (0, True)
    assert nameless.stdout.splitlines()[1].split()[:2] == ["?", "?"]
    assert address in nameless.stdout
    assert command(lab, "ls", "--admin-socket", "/nowhere.sock").returncode == 3
    lab.docker("stop", "--time", "1", name)
    stopped = command(lab, "inspect", name)
    assert (stopped.returncode, f"{name} exists and is not running (exited)" in stopped.stderr) == (2, True)


@pytest.mark.usefixtures("sandbox_before_join")
def test_addresses_that_docker_does_not_know(scene: Scene) -> None:
    """They are in `ls`, in `events` and, until the container goes, in the metrics."""
    lab = scene.lab
    configuration = scene.configure(bridge(scene.subnet()))
    network = scene.network(configuration, mode="direct")
    container = scene.run(network)
    (address,) = (str(one.ip) for one in container.link().addresses)
    assert container.endpoint(network).addresses == ()
    _, line = command(lab, "ls", network).stdout.splitlines()
    assert {container.name, f"{address}/24"} <= {*line.split()}
    joined = [json.loads(line) for line in command(lab, "events", *LAST, "--json").stdout.splitlines()]
    assert [address] in [event.get("addresses") for event in joined if event.get("phase") == "joined"]
    assert f"joined  {address}" in command(lab, "events", *LAST).stdout
    metric = f'cni_bridge_direct_address_info{{address="{address}",network="{configuration}"}} 1.0'
    scrape = ("curl", "-sf", "--unix-socket", "/run/cni-bridge/admin.sock", "http://localhost/metrics")
    wait_until(lambda: metric in lab.run(*scrape).stdout, "the address is in the metrics")
    lab.docker("rm", "-f", container.name)
    wait_until(lambda: metric not in lab.run(*scrape).stdout, "metrics are computed once a second")


def check(lab: Lab, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Compare a container with what its plugins made."""
    return command(lab, "inspect", "--check", *arguments)


def checked(lab: Lab, name: str) -> tuple[int, set[str]]:
    """Return the exit status of such a comparison, and what it has found differences about."""
    done = check(lab, name, "--json")
    (document,) = get_objects(json.loads(done.stdout), "endpoints")
    return done.returncode, {get_str(one, "about") for one in get_objects(document, "findings")}


def test_what_was_removed_is_found(scene: Scene) -> None:
    """An untouched container has no difference; a removed rule, reservation or address is named."""
    lab, subnet = scene.lab, scene.subnet()
    network = scene.network(scene.configure([*bridge(subnet, ipv6=True), BANDWIDTH, PORTMAP]))
    name = scene.run(network, "-p", "8602:80").name
    assert checked(lab, name) == (0, set()), check(lab, name).stdout
    described = inspect(lab, name)
    owned = get_object(described, "owned")

    def rule(part: str) -> list[str]:
        (found, *_) = (one for one in get_strings(owned, "rules") if part in one)
        return shlex.split(found)

    removed = {"-A POSTROUTING -s 10.": "rule", "-A CNI-HOSTPORT-DNAT": "rule", "-A CNI-FORWARD": "firewall"}
    for part, found in removed.items():
        arguments = rule(part)
        index = arguments.index("-A")
        lab.run(*arguments[:index], "-D", *arguments[index + 1 :])
        status, about = checked(lab, name)
        assert (status, found in about) == (1, True), part
        assert f"docker restart {name}" in check(lab, name).stdout
        lab.run(*arguments[:index], "-I", *arguments[index + 1 :])
    assert checked(lab, name) == (0, set())
    (address, *_) = get_strings(described, "addresses")
    lab.run("nsenter", f"--net={get_str(described, 'sandboxKey')}", "ip", "address", "del", address, "dev", "eth0")
    status, about = checked(lab, name)
    assert (status, "address" in about) == (1, True)


@pytest.mark.moves("a container in the host's PID namespace has no first process")
@pytest.mark.parametrize("options", [(), ("--pid=host",), ("--mac-address=02:42:AC:00:00:07",)])
@pytest.mark.parametrize("mode", ["auto", "fast"])
@pytest.mark.representatives("auto-options1")
def test_a_mac_that_the_plugin_did_not_choose(scene: Scene, options: Sequence[str], mode: str) -> None:
    """`ptp` makes a link with a MAC of its own; that Docker knows another one, which the link has, is no difference."""
    network = scene.network(scene.configure(ptp(scene.subnet(), ipv6=True)), "-o", f"cni.attach={mode}")
    container = scene.run(network, *options)
    assert checked(scene.lab, container.name) == (0, set()), check(scene.lab, container.name).stdout
    assert get_str(inspect(scene.lab, container.name), "mac") == container.link().mac


@pytest.mark.parametrize("attach", ["move", "hybrid"])
@pytest.mark.parametrize(("maker", "later"), [(ptp, ()), (bridge, ({"type": "sbr"},))], ids=["ptp", "sbr"])
@pytest.mark.representatives("ptp-hybrid")
def test_addresses_that_no_check_can_find(
    scene: Scene,
    engine: Engine,
    maker: Callable[[Subnet], Sequence[JsonObject]],
    later: Sequence[JsonObject],
    attach: str,
) -> None:
    """They are left out of CHECK, and a healthy container has no difference; CHECK still finds what else is lost."""
    if attach == "hybrid" and engine.version < (28,):
        pytest.skip(f"Docker Engine {engine.name} makes the sandbox after Join, so plugins cannot run in it")
    plugins = (*maker(scene.subnet()), *later)
    network = scene.network(scene.configure(plugins), mode=attach)
    name = scene.run(network).name
    done = check(scene.lab, name)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (reservation, *_) = get_strings(get_object(inspect(scene.lab, name), "owned"), "reservations")
    scene.lab.run("mv", reservation, "/run/reservation")
    assert checked(scene.lab, name) == (1, {"host-local"})
    scene.lab.run("mv", "/run/reservation", reservation)


def test_a_plugin_that_crashes_in_check(scene: Scene) -> None:
    """That is a note in one line, and no difference of the container."""
    answer = '[ "$CNI_COMMAND" = CHECK ] || exec python3 -c ' + shlex.quote(PREV_RESULT)
    trace = "panic: runtime error: invalid memory address\n\ngoroutine 1 [running]:\nmain.cmdCheck(0xc0)"
    scene.plugin("fragile", f"{answer}; echo '{trace}' >&2; exit 2")
    scene.plugin("killed", f"{answer}; kill -SEGV $$")
    network = scene.network(scene.configure([*bridge(scene.subnet()), {"type": "fragile"}, {"type": "killed"}]))
    name = scene.run(network).name
    done = check(scene.lab, name)
    assert (done.returncode, "no differences" in done.stdout or "0 differences" in done.stdout) == (0, True)
    notes = [line for line in done.stderr.splitlines() if "CHECK crashed" in line]
    assert len(notes) == 2
    assert "plugin fragile: its CHECK crashed (exit status 2)" in notes[0]
    assert "plugin killed: its CHECK crashed (SIGSEGV)" in notes[1]
    assert "goroutine" not in done.stdout + done.stderr


@pytest.mark.long
def test_a_rebuilt_endpoint_is_checked(private_scene: Scene) -> None:
    """A healthy one has no difference, and what is removed is named, as far as it can be known."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    network = private_scene.network(private_scene.configure([*bridge(subnet), BANDWIDTH, PORTMAP]))
    name = private_scene.run(network).name
    sandbox = lab.docker("inspect", "-f", "{{.NetworkSettings.SandboxKey}}", name)
    lab.stop_daemon()
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")
    lab.start_daemon("--reconcile-interval", "1")
    private_scene.run(network)  # reveals which engine is Docker's
    assert name in wait_logged(lab, "endpoint.rebuilt")
    described = inspect(lab, name)
    assert described["sandboxKey"] == sandbox
    assert checked(lab, name) == (0, set()), check(lab, name).stdout
    (address, *_) = get_strings(described, "addresses")
    lab.run("iptables", "-D", "CNI-FORWARD", "-s", f"{address.partition('/')[0]}/32", "-j", "ACCEPT")
    assert checked(lab, name) == (1, {"firewall"})
    lab.run("nsenter", f"--net={sandbox}", "ip", "address", "flush", "dev", "eth0")
    assert checked(lab, name) == (1, {"firewall", "address"})
    lab.run("nsenter", f"--net={sandbox}", "ip", "link", "del", "eth0")
    assert "link" in checked(lab, name)[1]


def test_a_failed_teardown_is_run_again(private_scene: Scene) -> None:
    """`status` and `cleanup` show it; only `cleanup --run` repeats the DEL, also by the first digits of the ID."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    private_scene.plugin("moody", f'[ "$CNI_COMMAND" = DEL ] && [ -e /run/bad-mood ] && exit 1; {PASS}')
    container = private_scene.run(private_scene.network(private_scene.configure([*bridge(subnet), {"type": "moody"}])))
    assert "fine: the Docker Engine answers; 1 network, 1 endpoint" in command(lab, "status").stdout
    assert command(lab, "cleanup", "--run").returncode == 0
    assert command(lab, "cleanup", "--run", "ffff").returncode == 2
    lab.write("/run/bad-mood", "")
    lab.docker("rm", "-f", container.name)
    wait_until(lambda: bool(get_objects(ask_status(lab), "pendingTeardowns")), "a failed teardown", 30)
    (pending,) = get_objects(ask_status(lab), "pendingTeardowns")
    for wait in ((), ("--wait", "0.1")):
        status = command(lab, "status", *wait)
        assert (status.returncode, "moody" in status.stdout.partition("PENDING TEARDOWN")[2]) == (1, True)
    assert command(lab, "cleanup", "--run", get_str(pending, "endpointId")[:8]).returncode == 1
    shown = command(lab, "cleanup")
    assert (shown.returncode, get_str(pending, "endpointId")[:12] in shown.stdout) == (1, True)
    lab.remove("/run/bad-mood")
    done = command(lab, "cleanup", "--run")
    assert (done.returncode, done.stdout.strip()) == (0, "nothing is left")


@pytest.mark.smoke
def test_a_network_from_one_word(scene: Scene) -> None:
    """Docker leaves the addresses to the plugins, whichever flags the engine needs for that."""
    lab, subnet = scene.lab, scene.subnet()
    configuration = scene.configure(bridge(subnet))
    scene.adopt_network(configuration)
    shown = command(lab, "network", "create", "--dry-run", configuration)
    assert f"-o cni.network={configuration} {configuration}" in shown.stdout.splitlines()[-1]
    made = command(lab, "network", "create", configuration)
    assert made.returncode == 0, made.stderr
    assert f"next: docker run --network {configuration} IMAGE" in made.stdout.splitlines()
    container = scene.run(configuration)
    assert str(container.link().addresses[0]).startswith(subnet.ipv4[: -len("0/24")])
    again = command(lab, "network", "create", configuration)
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    misspelt = command(lab, "network", "create", "other", f"{configuration}x")
    assert (misspelt.returncode, configuration in misspelt.stderr) == (1, True)


def explain(scene: Scene, *arguments: str) -> JsonObject:
    """Run the command on the lab's host."""
    done = scene.lab.run(sys.executable, "-m", "cnm_bridge", "explain", "--json", *arguments)
    found: JsonObject = json.loads(done.stdout)
    return found


def test_a_docker_network(scene: Scene) -> None:
    """A network, by name or ID, is explained with its own options and pools; the host is unchanged afterwards."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    options = (f"--subnet={subnet.ipv4}", "--internal", "-o", "cni.args.A=1", "-o", "cni.ifname-prefix=lan")
    network = scene.docker_network(name, *options)
    before = scene.lab.state()
    identity = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    for asked in (network, identity):
        found = explain(scene, asked, "-o", "cni.args.B=2")
        assert (found["dockerNetwork"], found["name"], found["ifnamePrefix"]) == (network, name, "lan")
        assert (
            get_str(get_object(get_objects(found, "plugins")[0], "environment"), "CNI_ARGS")
            == "IgnoreUnknown=1;A=1;B=2"
        )
    assert scene.lab.state() == before
