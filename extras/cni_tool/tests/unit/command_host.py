# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The scene of the command's tests: a host with a network, fake plugins and a cache, and the command on it."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from cni_bridge_spec import JsonObject, JsonValue, as_object, parse_json
from cni_tool.command import main
from cni_tool.forms import container_id
from tests.plugins import Command, FakePlugins

__all__ = ["ID", "LIMIT_S", "NETNS", "RESULT", "Host"]

NETNS = "/run/netns/testing"
ID = container_id(NETNS)
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
LIMIT_S = 30.0


class Host:
    """A directory of configurations, a directory of fake plugins, and a cache."""

    def __init__(self, directory: Path) -> None:
        self.configurations = directory / "net.d"
        self.configurations.mkdir()
        self.cache = directory / "cache"
        self.plugins = FakePlugins(directory / "bin")
        self.plugins.install("first", ADD={"result": RESULT})
        self.configure("10-blue.conflist", {"type": "first", "capabilities": {"mac": True}})

    def configure(self, file: str, *plugins: JsonValue, name: str = "blue") -> Path:
        """Write a network configuration list."""
        path = self.configurations / file
        path.write_text(json.dumps({"cniVersion": "1.1.0", "name": name, "plugins": plugins}))
        return path

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        verb, *rest = arguments
        kept = ["--cache-dir", str(self.cache)] if verb in {"add", "attachments", "check", "del", "gc"} else []
        return [sys.executable, "-m", "cni_tool", verb, *kept, *rest]

    def changes(self, **variables: str) -> dict[str, str | None]:
        """Return how the environment of the command differs from this process's; None removes a variable."""
        return {
            **{key: None for key in os.environ if key.startswith(("CNI_", "CAP_"))},
            "NETCONFPATH": str(self.configurations),
            "CNI_PATH": str(self.plugins.directory),
            **variables,
        }

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of the command."""
        return {key: value for key, value in {**os.environ, **self.changes(**variables)}.items() if value is not None}

    def run(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run the command until it exits, in this process; `running` starts a process, which takes longer."""
        command = self.command(*arguments)
        loggers = [logging.getLogger(package) for package in ("cni_invoker", "cni_tool")]
        before = [(logger.level, tuple(logger.handlers)) for logger in loggers]
        argv, returncode = sys.argv, 0
        with CliRunner().isolation(env=self.changes(**variables)) as (stdout, stderr, _):
            sys.argv = command[2:]
            try:
                main()
            except SystemExit as exc:
                returncode = int(exc.code or 0)
            finally:
                sys.argv = argv
                for logger, (level, handlers) in zip(loggers, before, strict=True):
                    logger.setLevel(level)
                    logger.handlers[:] = handlers
        return subprocess.CompletedProcess(command, returncode, stdout.getvalue().decode(), stderr.getvalue().decode())

    def do(self, *arguments: str, **variables: str) -> str:
        """Run the command, which must succeed, and return what it printed."""
        done = self.run(*arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fail(self, *arguments: str, **variables: str) -> tuple[JsonObject, str]:
        """Run the command, which must fail, and return its CNI error and its standard error."""
        done = self.run(*arguments, **variables)
        assert done.returncode == 1
        return as_object(parse_json(done.stdout.encode()), "the error"), done.stderr

    @contextmanager
    def running(self, *arguments: str, ignoring: str = "") -> Iterator["subprocess.Popen[str]"]:
        """Run the command in the background; it ignores the given signal, and no other that the tests ignore."""
        with subprocess.Popen(
            ["env", "--default-signal", f"--ignore-signal={ignoring}", *self.command(*arguments)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return the executions of the plugins, without those for VERSION."""
        return tuple(command for command in self.plugins.commands if command.verb != "VERSION")

    @property
    def verbs(self) -> list[str]:
        """Return the verbs of these executions."""
        return [command.verb for command in self.commands]

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory of the cache, sorted."""
        return sorted(path.name for path in (self.cache / directory).iterdir())

    def wait_for(self, verb: str) -> None:
        """Wait until a plugin receives a verb."""
        deadline = time.monotonic() + LIMIT_S
        while verb not in self.verbs:
            assert time.monotonic() < deadline
            time.sleep(0.02)
