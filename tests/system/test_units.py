# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The project's units, run by systemd: plugins work within their restrictions, and the socket survives failures."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cni_invoker.documents.jsontypes import JsonValue
from tests.lab import ADMIN_SOCKET, PLUGIN_SOCKET, Engine, Lab, Plugins, known_plugins, wait_until
from tests.lab.systemd import Systemd
from tests.lab.unix_http import request
from tests.system.equivalence import assert_equivalent, run_directly
from tests.system.plugin_lists import LISTS, commands, write_wrapper
from tests.system.scene import Scene

SERVICE, SOCKET, ADMIN_UNIT = "cni-bridge.service", "cni-bridge.socket", "cni-bridge-admin.socket"
CONFIGURATION = "/etc/cni-bridge/config.toml"
ACTIVATED = (200, {"Implements": ["NetworkDriver", "IpamDriver"]})
FAILURES = 8
"""More starts in a row than systemd's default limit of five in ten seconds."""


def activate(lab: Lab) -> tuple[int, JsonValue]:
    """Call the daemon, and wait for its answer as Docker does."""
    return request(lab.path(PLUGIN_SOCKET), "POST", "/Plugin.Activate", timeout_s=60.0)


@pytest.fixture(name="plain_lab")
def make_plain_lab() -> Iterator[Lab]:
    """A lab with systemd, in which no unit is started."""
    with Lab(dockerd=False) as lab:
        yield lab


@pytest.fixture(name="unit_lab", scope="module")
def make_unit_lab(engine: Engine, cni_plugins: Plugins | None) -> Iterator[Lab]:
    """A Docker host whose daemon was started by systemd, as on a real host."""
    with Lab(dockerd=False, engine=engine, plugins=cni_plugins) as lab:
        systemd = Systemd(lab)
        systemd.control("start", SOCKET, SERVICE)
        lab.start_dockerd()
        lab.import_image()
        yield lab
        lab.stop_dockerd()
        systemd.control("stop", SERVICE, SOCKET)


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.representatives("bridge all chained")
def test_plugins_work_within_the_units_restrictions(unit_lab: Lab, cni_plugins: Plugins | None, kind: str) -> None:
    """A list makes the same with the unit's restrictions as without any, and nothing is left behind."""
    chosen = LISTS[kind]
    plugins = cni_plugins or known_plugins()[0]
    if plugins.version < chosen.since:
        pytest.skip(f"plugins {plugins.name} cannot run this list; {'.'.join(map(str, chosen.since))} or newer can")
    before = unit_lab.state()
    with Scene(unit_lab) as scene:
        subnet = scene.subnet()
        write_wrapper(scene, commands(subnet))
        name = scene.configure(chosen.plugins(subnet), cni_version=chosen.cni_version)
        wanted = run_directly(unit_lab, name, chosen.capability_args)
        assert_equivalent(unit_lab, scene.run(scene.network(name), *chosen.options), wanted)
    assert unit_lab.wait_clean(before) == ""


def test_systemd_passes_both_sockets(unit_lab: Lab) -> None:
    """The daemon answers on the admin socket of the unit, and keeps the file that systemd has made."""
    shown = unit_lab.run("systemctl", "show", "--property=SubState", "--value", ADMIN_UNIT, SOCKET).stdout.split()
    assert shown == ["running", "running"]
    assert unit_lab.path(ADMIN_SOCKET).stat().st_mode & 0o777 == 0o600
    listening = unit_lab.run("ss", "--no-header", "--listening", "--unix", "src", ADMIN_SOCKET).stdout
    assert len(listening.splitlines()) == 1


def test_the_restrictions_of_the_unit(unit_lab: Lab) -> None:
    """The daemon, and so its plugins, lack the capabilities that the unit drops; its namespaces are the host's."""
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


@pytest.mark.long
def test_invalid_settings_do_not_end_the_socket(plain_lab: Lab) -> None:
    """A call waits however often the daemon fails to start, and is answered when the settings are corrected."""
    systemd = Systemd(plain_lab)
    plain_lab.write(CONFIGURATION, "socet = '/x'\n")
    systemd.control("start", SOCKET)
    with ThreadPoolExecutor(max_workers=1) as caller:
        answer = caller.submit(activate, plain_lab)
        wait_until(lambda: int(systemd.show(SERVICE, "NRestarts")["NRestarts"]) >= FAILURES, "failed starts", 40.0)
        assert systemd.show(SERVICE, "ExecMainStatus", "Result") in (
            {"ExecMainStatus": "78", "Result": "exit-code"},
            {"ExecMainStatus": "0", "Result": "success"},  # during a new attempt
        )
        assert systemd.show(SOCKET, "ActiveState", "Result") == {"ActiveState": "active", "Result": "success"}
        assert not answer.done()
        plain_lab.remove(CONFIGURATION)
        assert answer.result() == ACTIVATED
    assert "option socet: unknown to cni-bridge; did you mean socket?" in systemd.log()


def test_the_socket_outlives_the_daemon(plain_lab: Lab) -> None:
    """After the daemon was stopped or killed, the next call to systemd's socket starts a new one."""
    systemd = Systemd(plain_lab)
    systemd.control("start", SOCKET, SERVICE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        systemd.control("kill", f"--signal={number.name}", "--kill-whom=main", SERVICE)
        assert activate(plain_lab) == ACTIVATED
        assert plain_lab.path(PLUGIN_SOCKET).is_socket()


@pytest.mark.long
def test_a_daemon_that_stands_still_is_started_again(plain_lab: Lab) -> None:
    """The event loop feeds systemd's watchdog; a stopped process does not."""
    systemd = Systemd(plain_lab)
    limit_s = 2
    plain_lab.write(f"/run/systemd/system/{SERVICE}.d/watchdog.conf", f"[Service]\nWatchdogSec={limit_s}\n")
    systemd.control("daemon-reload")
    systemd.control("start", SOCKET, SERVICE)
    before = systemd.show(SERVICE, "MainPID", "NRestarts")

    def fed_us() -> int:
        return int(systemd.show(SERVICE, "WatchdogTimestampMonotonic")["WatchdogTimestampMonotonic"])

    started_us = fed_us()
    wait_until(lambda: fed_us() > started_us + limit_s * 1_000_000, "a watchdog that is fed beyond its limit", 30.0)
    assert systemd.show(SERVICE, "MainPID", "NRestarts") == before
    systemd.control("kill", "--signal=SIGSTOP", "--kill-whom=main", SERVICE)
    wait_until(lambda: systemd.show(SERVICE, "NRestarts")["NRestarts"] == "1", "a new daemon", 60.0)
    assert activate(plain_lab) == ACTIVATED
