# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command, run as an operator runs it. It needs no root as long as no container is created."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from cnm_bridge import __version__
from cnm_bridge.operator.cli.main import main

COMMAND = (sys.executable, "-m", "cnm_bridge")
START_S = 60.0
"""Ends a test whose daemon does not start. It starts in less than a second, or in many on a busy machine."""

GENERIC = "com.docker.network.generic"


def environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without settings of the daemon, plus `changes`."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CNI_BRIDGE_")} | changes


def options(where: Path) -> list[str]:
    """Return options that keep the daemon inside `where`."""
    return ["--state-dir", f"{where}/state", "--run-dir", f"{where}/run", "--docker-host", f"unix://{where}/docker"]


def activate(path: Path) -> bytes:
    """Return the daemon's answer to Docker's handshake; it is empty if there is no answer."""
    return call(path, "Plugin.Activate", b"")


def call(path: Path, method: str, body: bytes) -> bytes:
    """Return the daemon's answer to a call; it is empty if there is no answer."""
    with socket.socket(socket.AF_UNIX) as client:
        # The socket accepts connections before the daemon answers, and a repeated call would be answered twice.
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
    """Run `cni-bridge serve`, and kill it afterwards."""
    command = [*COMMAND, "serve", *options(where), *arguments]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(path: Path) -> bytes:
    """Return the daemon's answer to Docker's handshake as soon as there is one."""
    deadline = time.monotonic() + START_S
    while not (answer := activate(path)):
        assert time.monotonic() < deadline, f"there is no answer at {path}"
        time.sleep(0.01)
    return answer


def create_network(path: Path) -> str:
    """Return the answer to CreateNetwork with a configuration that does not exist."""
    body = json.dumps({"NetworkID": "a" * 64, "Options": {GENERIC: {"cni.network": "nowhere"}}}).encode()
    return call(path, "NetworkDriver.CreateNetwork", body).decode()


def invalid(*arguments: str, **variables: str) -> str:
    """Return what `cni-bridge serve` prints for invalid settings, in this process, because nothing else happens."""
    env: dict[str, str | None] = {key: None for key in os.environ if key.startswith("CNI_BRIDGE_")}
    done = CliRunner().invoke(main, ["serve", *arguments], prog_name="cni-bridge", env={**env, **variables})
    assert done.exit_code == os.EX_CONFIG, done.output
    return " ".join(done.stderr.split())


def refused(*arguments: str) -> str:
    """Return what `cni-bridge serve` prints when it does not start."""
    done = subprocess.run(
        [*COMMAND, "serve", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_the_version_is_printed() -> None:
    """`--version` prints name and version."""
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True, timeout=START_S)
    assert done.stdout == f"cni-bridge {__version__}\n"


def test_the_help_has_the_first_sentence_of_each_subcommand() -> None:
    """The sentences that the list of subcommands shows are those of the subcommands' own help."""
    for name, command in main.commands.items():
        assert main.first_sentence(name) == command.get_short_help_str(1000)


def test_the_help_has_each_subcommand_once() -> None:
    """In the section of what it is for."""
    shown = CliRunner().invoke(main, ["--help"], prog_name="cni-bridge").output
    listed = shown[shown.index("Start:") : shown.index("Examples:")]
    assert re.findall(r"^(\w+):$", listed, re.MULTILINE) == ["Start", "Look", "Repair", "Daemon"]
    assert sorted(re.findall(r"^  ([\w-]+) ", listed, re.MULTILINE)) == sorted(main.commands)


def test_the_help_imports_no_subcommand() -> None:
    """`--help` and the completion of a subcommand's name answer at once."""
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
        "from cnm_bridge.operator.cli.main import main; main(prog_name='cni-bridge')"
    )
    completing = {"_CNI_BRIDGE_COMPLETE": "bash_complete", "COMP_WORDS": "cni-bridge ", "COMP_CWORD": "1"}
    for arguments, variables in ((["--help"], {}), ([], completing)):
        command = [sys.executable, "-c", script, *arguments]
        env = environment(**variables)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=START_S, check=True)
        assert "cleanup" in done.stdout
        assert "cnm_bridge.operator.cli.main" in done.stdout
        assert "cnm_bridge.operator.cli.commands" not in done.stdout


def test_serve_answers_and_stops(tmp_path: Path) -> None:
    """The handshake is answered, SIGTERM stops the daemon cleanly, and each log line is a JSON object."""
    path = tmp_path / "s"
    with serving(tmp_path, "--socket", str(path), "--log-level", "debug", env=environment()) as process:
        assert b'{"Implements":["NetworkDriver","IpamDriver"]}' in wait_for(path)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=START_S)
    assert process.returncode == 0
    assert not path.exists()
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events == ["daemon.ready", "rpc.answered", "daemon.stopping", "daemon.stopped"]


def test_serve_under_systemd(tmp_path: Path) -> None:
    """A socket from systemd is used and stays open when the daemon stops; systemd receives readiness and stop."""
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


@pytest.mark.slow
def test_the_command_line_wins_over_environment_and_file(tmp_path: Path) -> None:
    """A setting comes from the command line, else from the environment, else from the file."""
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
    ("content", "message"),
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
        ("plugin-timeout = nan", "not a positive number"),
        ("plugin-timeout = inf", "not a positive number"),
        ("log-level = 'loud'", "loud"),
        ("docker-host = 'nonsense'", "option docker-host: "),
        ("docker-host = 'tcp://localhost:abc'", "option docker-host: "),
        ("docker-host = 'tcp://[::1'", "option docker-host: "),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    """The error names the option, and nothing is started."""
    config = tmp_path / "config.toml"
    config.write_text(content)
    with_socket = [] if content.startswith("socket") else ["--socket", str(tmp_path / "s")]
    error = invalid("--config", str(config), *with_socket)
    assert message in error
    assert "from the command line" not in error
    assert str(config) in error
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "origin"),
    [
        (["--plugin-timeout", "0"], {}, "from the command line"),
        ([], {"CNI_BRIDGE_PLUGIN_TIMEOUT": "0"}, "from the environment variable CNI_BRIDGE_PLUGIN_TIMEOUT"),
        ([], {"DOCKER_HOST": "ssh://x"}, "from the environment variable DOCKER_HOST"),
        ([], {"CNI_BRIDGE_DOCKER_HOST": "ssh://x", "DOCKER_HOST": "tcp://y"}, "variable CNI_BRIDGE_DOCKER_HOST"),
        ([], {"CNI_BRIDGE_CONFIG": "/nowhere"}, "from the environment variable CNI_BRIDGE_CONFIG"),
        (["--config", "{file}"], {}, "{file}: option plugin-timeout: "),
        (["--config", "{file}", "--plugin-timeout", "5"], {}, "{file}: option plugin-timeout: "),  # the file as a whole
    ],
)
def test_an_error_names_the_origin_of_the_value(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], origin: str
) -> None:
    """It is the command line, a variable, or a file and key."""
    config = tmp_path / "config.toml"
    config.write_text("plugin-timeout = 0\n")
    given = [argument.format(file=config) for argument in arguments]
    assert origin.format(file=config) in invalid(*given, "--socket", str(tmp_path / "s"), **variables)


def test_a_socket_path_that_cannot_be_used_is_rejected(tmp_path: Path) -> None:
    """A path of another file, or one too long for the kernel, is an error, and nothing is changed."""
    taken = tmp_path / "taken"
    taken.write_text("precious")
    assert "is not a socket" in refused(*options(tmp_path), "--socket", str(taken))
    assert taken.read_text() == "precious"
    assert "too long" in refused(*options(tmp_path), "--socket", str(tmp_path / ("x" * 120)))
    assert not (tmp_path / "state").exists()
