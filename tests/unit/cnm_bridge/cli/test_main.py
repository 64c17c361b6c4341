# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command, run as an operator runs it; it needs no root as long as no container comes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cnm_bridge import __version__
from spec import JsonObject, parse_json

COMMAND = (sys.executable, "-m", "cnm_bridge")
START_S = 60.0
"""The daemon starts in less than a second, or in many on a busy machine."""

GENERIC = "com.docker.network.generic"


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without settings of the daemon, plus `changes`."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CNI_BRIDGE_")} | changes


def options(where: Path) -> list[str]:
    """Return options that keep the daemon inside `where`."""
    return ["--state-dir", f"{where}/state", "--run-dir", f"{where}/run", "--docker-host", f"unix://{where}/docker"]


def activate(path: Path) -> bytes:
    """Return the daemon's answer to Docker's handshake, empty as long as nobody answers."""
    return call(path, "Plugin.Activate", b"")


def call(path: Path, method: str, body: bytes) -> bytes:
    """Return the daemon's answer to a call, empty as long as nobody answers."""
    with socket.socket(socket.AF_UNIX) as client:
        # A daemon that starts has opened its socket, and answers later; who gives up and asks again is answered twice.
        client.settimeout(START_S)
        try:
            client.connect(str(path))
            client.sendall(f"POST /{method} HTTP/1.1\r\nHost: \r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while chunk := client.recv(4096):
                answer += chunk
        except OSError:
            return b""
    return answer


@contextmanager
def serving(where: Path, *arguments: str, env: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Run `cni-bridge serve`, and end it in the end."""
    command = [*COMMAND, "serve", *options(where), *arguments]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(path: Path) -> bytes:
    """Return the daemon's answer to Docker's handshake once there is one."""
    deadline = time.monotonic() + START_S
    while not (answer := activate(path)):
        assert time.monotonic() < deadline, f"nobody answers at {path}"
        time.sleep(0.01)
    return answer


def wait_event(process: "subprocess.Popen[str]", event: str) -> JsonObject:
    """Return the next line of the daemon's log about an event."""
    assert process.stderr is not None
    for line in process.stderr:
        document = parse_json(line.encode())
        assert isinstance(document, dict)
        if document["event"] == event:
            return document
    raise AssertionError(f"the daemon ended without {event}")


def create_network(path: Path) -> str:
    """Return the daemon's answer to a network that is bound to a configuration that is nowhere."""
    body = json.dumps({"NetworkID": "a" * 64, "Options": {GENERIC: {"cni.network": "nowhere"}}}).encode()
    return call(path, "NetworkDriver.CreateNetwork", body).decode()


def refused(*arguments: str, **variables: str) -> str:
    """Return what `cni-bridge serve` says when it does not start."""
    done = subprocess.run(
        [*COMMAND, "serve", *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_version() -> None:
    """The version is told."""
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True, timeout=START_S)
    assert done.stdout == f"cni-bridge {__version__}\n"


def test_serve_answers_and_ends(tmp_path: Path) -> None:
    """The handshake is answered, SIGTERM ends the daemon cleanly, and the log is one JSON object a line."""
    path = tmp_path / "s"
    with serving(tmp_path, "--socket", str(path), env=environment()) as process:
        assert b'{"Implements":["NetworkDriver"]}' in wait_for(path)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=START_S)
    assert process.returncode == 0
    assert not path.exists()
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events == ["daemon.ready", "rpc.answered", "daemon.stopping", "daemon.stopped"]


def test_serve_under_systemd(tmp_path: Path) -> None:
    """A socket that systemd opened is used and stays when the daemon ends; readiness and the end are told."""
    path = tmp_path / "given.sock"
    with socket.socket(socket.AF_UNIX) as given, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        given.bind(str(path))
        given.listen()
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(START_S)
        script = f'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&{given.fileno()}'
        command = ["bash", "-c", script, "bash", *COMMAND, "serve", *options(tmp_path), "--socket", f"{tmp_path}/own"]
        env = environment(NOTIFY_SOCKET=str(tmp_path / "notify"))
        with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, pass_fds=[given.fileno()]) as process:
            assert supervisor.recv(100) == b"READY=1"
            assert b"NetworkDriver" in activate(path)
            process.send_signal(signal.SIGTERM)
            assert supervisor.recv(100) == b"STOPPING=1"
            assert process.wait(timeout=START_S) == 0
    assert path.exists()
    assert not (tmp_path / "own").exists()


def test_hangup_reads_the_settings_again(tmp_path: Path) -> None:
    """SIGHUP takes over what can change, names what needs a restart, and the daemon goes on answering."""
    path, config = tmp_path / "s", tmp_path / "config.toml"
    config.write_text(f'cni-conf-dir = ["{tmp_path}/a"]\nlog-level = "warning"\n')
    with serving(tmp_path, "--socket", str(path), "--config", str(config), env=environment()) as process:
        wait_for(path)
        config.write_text(f'cni-conf-dir = ["{tmp_path}/b"]\nlog-level = "debug"\nplugin-timeout = 5\n')
        process.send_signal(signal.SIGHUP)
        changed = wait_event(process, "daemon.reloaded")["changed"]
        assert changed == {"cni-conf-dir": [f"{tmp_path}/b"], "log-level": "debug"}
        assert wait_event(process, "daemon.restart_needed")["settings"] == ["plugin-timeout"]
        error = create_network(path)
        assert f"{tmp_path}/b" in error
        assert f"{tmp_path}/a" not in error
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=START_S) == 0


def test_a_bad_file_at_hangup_changes_nothing(tmp_path: Path) -> None:
    """A mistake that is found at SIGHUP is logged with its place; all settings stay, those beside it too."""
    path, config = tmp_path / "s", tmp_path / "config.toml"
    config.write_text(f'cni-conf-dir = ["{tmp_path}/a"]\nlog-level = "warning"\n')
    with serving(tmp_path, "--socket", str(path), "--config", str(config), env=environment()) as process:
        wait_for(path)
        config.write_text(f'cni-conf-dir = ["{tmp_path}/b"]\nlog-level = "loud"\n')
        process.send_signal(signal.SIGHUP)
        error = wait_event(process, "daemon.not_reloaded")["error"]
        assert f"from the file {config}, key log-level" in str(error)
        assert f"{tmp_path}/a" in create_network(path)
        config.unlink()
        process.send_signal(signal.SIGHUP)
        assert "No such file" in str(wait_event(process, "daemon.not_reloaded")["error"])
        assert f"{tmp_path}/a" in create_network(path)


def test_hangup_while_nothing_has_changed(tmp_path: Path) -> None:
    """The line says that nothing has; one that appears at a level that hides it is written before or after."""
    path, config = tmp_path / "s", tmp_path / "config.toml"
    config.write_text("")
    with serving(tmp_path, "--socket", str(path), "--config", str(config), env=environment()) as process:
        wait_for(path)
        process.send_signal(signal.SIGHUP)
        assert wait_event(process, "daemon.reloaded")["changed"] == {}
        config.write_text("log-level = 'error'")
        process.send_signal(signal.SIGHUP)
        assert wait_event(process, "daemon.reloaded")["changed"] == {"log-level": "error"}


@pytest.mark.parametrize("content", ["socet = '/x'", "plugin-timeout = 0", "= ="])
def test_settings_that_cannot_be_used_have_a_status_of_their_own(tmp_path: Path, content: str) -> None:
    """A supervisor can tell a mistake in the configuration, which stays until it is mended, from a failure."""
    config = tmp_path / "config.toml"
    config.write_text(content)
    command = [*COMMAND, "serve", *options(tmp_path), "--config", str(config)]
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=START_S, check=False)
    assert done.returncode == os.EX_CONFIG


def test_command_line_before_environment_before_file(tmp_path: Path) -> None:
    """A setting comes from the nearest place that has it."""
    by_file, by_environment, by_option = (tmp_path / name for name in ("file", "environment", "option"))
    config = tmp_path / "config.toml"
    config.write_text(f'socket = "{by_file}"\ncni-conf-dir = ["/a", "/b"]\nlog-level = "debug"\n')
    base = environment(CNI_BRIDGE_CONFIG=str(config))
    with serving(tmp_path, env=base):
        wait_for(by_file)
    both = {**base, "CNI_BRIDGE_SOCKET": str(by_environment)}
    with serving(tmp_path, env=both):
        wait_for(by_environment)
    with serving(tmp_path, "--socket", str(by_option), env=both):
        wait_for(by_option)
        assert not by_environment.exists() or not activate(by_environment)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("socet = '/x'", "option socet: unknown to cni-bridge; did you mean socket?"),
        ("socket = nothing", "line 1, column"),
        ("[socket]\npath = 1", "option socket: must be a text"),
        ("socket = 5", "option socket: must be a text, not 5"),
        ("socket = ''", "is empty"),
        ("cni-conf-dir = '/x'", "option cni-conf-dir: must be a list of texts"),
        ("cni-conf-dir = [1]", "option cni-conf-dir: must be a list of texts"),
        ("cni-conf-dir = []", "option cni-conf-dir: must be a list of texts"),
        ("plugin-timeout = true", "option plugin-timeout: must be a number"),
        ("plugin-timeout = -1", "plugin-timeout"),
        ("plugin-timeout = nan", "not a time"),
        ("plugin-timeout = inf", "not a time"),
        ("log-level = 'loud'", "loud"),
        ("docker-host = 'nonsense'", "--docker-host"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, content: str, says: str) -> None:
    """A mistake in the file is named and nothing is started."""
    config = tmp_path / "config.toml"
    config.write_text(content)
    config.write_text(content)
    with_socket = [] if content.startswith("socket") else ["--socket", str(tmp_path / "s")]
    error = refused("--config", str(config), *with_socket)
    assert says in error
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "origin"),
    [
        (["--plugin-timeout", "0"], {}, "from the command line"),
        ([], {"CNI_BRIDGE_PLUGIN_TIMEOUT": "0"}, "from the environment variable CNI_BRIDGE_PLUGIN_TIMEOUT"),
        ([], {"DOCKER_HOST": "ssh://x"}, "from the environment variable DOCKER_HOST"),
        ([], {"CNI_BRIDGE_DOCKER_HOST": "ssh://x", "DOCKER_HOST": "tcp://y"}, "variable CNI_BRIDGE_DOCKER_HOST"),
        ([], {"CNI_BRIDGE_CONFIG": "/nowhere"}, "from the environment variable CNI_BRIDGE_CONFIG"),
        (["--config", "{file}"], {}, "from the file {file}, key plugin-timeout"),
        (["--config", "{file}", "--plugin-timeout", "x"], {}, "from the command line"),
    ],
)
def test_an_error_says_where_the_value_came_from(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], origin: str
) -> None:
    """Command line, which variable, or which file and key."""
    config = tmp_path / "config.toml"
    config.write_text("plugin-timeout = 0\n")
    given = [argument.format(file=config) for argument in arguments]
    assert origin.format(file=config) in refused(*given, "--socket", str(tmp_path / "s"), **variables)


def test_a_socket_that_cannot_be(tmp_path: Path) -> None:
    """A path that is taken, or too long for the kernel, is named, and nothing is changed."""
    taken = tmp_path / "taken"
    taken.write_text("precious")
    assert "is no socket" in refused(*options(tmp_path), "--socket", str(taken))
    assert taken.read_text() == "precious"
    assert "too long" in refused(*options(tmp_path), "--socket", str(tmp_path / ("x" * 120)))
    assert not (tmp_path / "state").exists()


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    """An empty variable does not stand for the working directory."""
    assert "is empty" in refused("--state-dir", "", "--socket", str(tmp_path / "s"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that was named must be there."""
    assert "No such file" in refused("--config", str(tmp_path / "none.toml"))


def test_a_second_daemon_is_refused(tmp_path: Path) -> None:
    """The same state directory cannot be used twice; the first daemon, named by its process ID, goes on."""
    path = tmp_path / "s"
    with serving(tmp_path, "--socket", str(path), env=environment()) as first:
        wait_for(path)
        error = refused(*options(tmp_path), "--socket", str(tmp_path / "other"))
        assert f"in use by process {first.pid}" in error
        assert activate(path)


def test_a_killed_daemon_is_followed_by_another(tmp_path: Path) -> None:
    """Neither the socket nor the lock of a killed daemon is in the way."""
    path = tmp_path / "s"
    for _ in range(2):
        with serving(tmp_path, "--socket", str(path), env=environment()) as process:
            wait_for(path)
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=START_S)
