# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The project's units, run by systemd: plugins need nothing that they take away, and nothing ends the socket."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from spec.jsontypes import JsonValue
from tests.lab import PLUGIN_SOCKET, Engine, Lab, Plugins, known_plugins, wait_until
from tests.lab.systemd import Systemd
from tests.lab.unix_http import request
from tests.system.equivalence import assert_settled, straight
from tests.system.plugin_lists import LISTS, commands, write_wrapper
from tests.system.scene import Scene

SERVICE, SOCKET = "cni-bridge.service", "cni-bridge.socket"
CONFIGURATION = "/etc/cni-bridge/config.toml"
ACTIVATED = (200, {"Implements": ["NetworkDriver"]})
FAILURES = 8
"""So many starts in a row are more than systemd's usual limit of five in ten seconds."""


def activate(lab: Lab) -> tuple[int, JsonValue]:
    """Call the daemon, and wait for its answer as Docker does."""
    return request(lab.path(PLUGIN_SOCKET), "POST", "/Plugin.Activate", timeout_s=60.0)


@pytest.fixture(name="plain_lab")
def make_plain_lab() -> Iterator[Lab]:
    """A lab with systemd, and nothing started yet."""
    with Lab(dockerd=False) as lab:
        yield lab


@pytest.fixture(name="unit_lab", scope="module")
def make_unit_lab(engine: Engine, cni_plugins: Plugins | None) -> Iterator[Lab]:
    """A Docker host whose daemon systemd has started, as on a real one."""
    with Lab(dockerd=False, engine=engine, plugins=cni_plugins) as lab:
        systemd = Systemd(lab)
        systemd.control("start", SOCKET, SERVICE)
        lab.start_dockerd()
        lab.import_image()
        yield lab
        lab.stop_dockerd()
        systemd.control("stop", SERVICE, SOCKET)


@pytest.mark.parametrize("kind", LISTS)
def test_plugins_can_do_all_that_they_need_to(unit_lab: Lab, cni_plugins: Plugins | None, kind: str) -> None:
    """A list makes the same within the unit's restrictions as without any, and nothing is left."""
    chosen = LISTS[kind]
    plugins = cni_plugins or known_plugins()[0]
    if plugins.version < chosen.since:
        pytest.skip(f"plugins {plugins.name} cannot: {'.'.join(map(str, chosen.since))} is the first that can")
    before = unit_lab.state()
    with Scene(unit_lab) as scene:
        subnet = scene.subnet()
        write_wrapper(scene, commands(subnet))
        name = scene.configure(chosen.plugins(subnet), cni_version=chosen.cni_version)
        wanted = straight(unit_lab, name, chosen.capability_args)
        assert_settled(unit_lab, scene.run(scene.network(name), *chosen.options), wanted)
    assert unit_lab.wait_clean(before) == ""


def test_the_restrictions_hold(unit_lab: Lab) -> None:
    """What the unit takes away is away from the daemon, and so from its plugins; its namespaces are the host's."""
    pid = unit_lab.run("systemctl", "show", "--value", "--property=MainPID", SERVICE).stdout.strip()
    lines = unit_lab.read(f"/proc/{pid}/status").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"], status["Umask"]) == ("1", "2", "0022")
    reboot, admin = 22, 12  # include/uapi/linux/capability.h
    allowed = int(status["CapBnd"], 16)
    assert not allowed >> reboot & 1
    assert allowed >> admin & 1
    for namespace in ("mnt", "net", "uts", "ipc", "pid"):
        own = unit_lab.run("readlink", f"/proc/{pid}/ns/{namespace}", "/proc/1/ns/" + namespace).stdout.split()
        assert own[0] == own[1], namespace


def test_a_mistake_in_the_settings_does_not_end_the_socket(plain_lab: Lab) -> None:
    """A call waits, however often the daemon fails to start, and is answered when the mistake is mended."""
    systemd = Systemd(plain_lab)
    plain_lab.write(CONFIGURATION, "socet = '/x'\n")
    systemd.control("start", SOCKET)
    with ThreadPoolExecutor(max_workers=1) as caller:
        answer = caller.submit(activate, plain_lab)
        wait_until(lambda: int(systemd.show(SERVICE, "NRestarts")["NRestarts"]) >= FAILURES, "failed starts", 40.0)
        assert systemd.show(SERVICE, "ExecMainStatus", "Result") in (
            {"ExecMainStatus": "78", "Result": "exit-code"},
            {"ExecMainStatus": "0", "Result": "success"},  # just being tried again
        )
        assert systemd.show(SOCKET, "ActiveState", "Result") == {"ActiveState": "active", "Result": "success"}
        assert not answer.done()
        plain_lab.remove(CONFIGURATION)
        assert answer.result() == ACTIVATED
    assert "option socet: unknown to cni-bridge; did you mean socket?" in systemd.log()


def test_reload(plain_lab: Lab) -> None:
    """`systemctl reload` has the settings read again by the same process."""
    systemd = Systemd(plain_lab)
    systemd.control("start", SERVICE)
    pid = systemd.show(SERVICE, "MainPID")
    plain_lab.write(CONFIGURATION, "log-level = 'debug'\n")
    systemd.control("reload", SERVICE)
    wait_until(lambda: '"event": "daemon.reloaded"' in systemd.log(), "a reload")
    assert systemd.show(SERVICE, "MainPID", "ActiveState") == {**pid, "ActiveState": "active"}


def test_the_socket_outlives_the_daemon(plain_lab: Lab) -> None:
    """A daemon that was stopped or killed leaves systemd's socket, by which the next call starts another."""
    systemd = Systemd(plain_lab)
    systemd.control("start", SOCKET, SERVICE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        systemd.control("kill", f"--signal={number.name}", "--kill-whom=main", SERVICE)
        assert activate(plain_lab) == ACTIVATED
        assert plain_lab.path(PLUGIN_SOCKET).is_socket()
