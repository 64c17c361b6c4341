# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's settings from the values of options, and those of a daemon that runs already."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.settings.all_settings import SETTINGS
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["daemon_settings", "settings_from"]

_COMMAND: Final = "serve"
_PREFIX: Final = "CNI_BRIDGE_"


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the settings for the options' values; relative paths start at the working directory."""
    given = Settings(**values)
    return replace(
        given,
        socket=given.socket.absolute(),
        admin_socket=given.admin_path.absolute(),
        state_dir=given.state_dir.absolute(),
        run_dir=given.run_dir.absolute(),
        tls_cert=given.tls_cert.absolute(),
        tls_key=given.tls_key.absolute(),
        tls_ca=given.tls_ca.absolute(),
    )


def daemon_settings(context: click.Context, values: Mapping[str, Any], pid: int | None) -> Settings:
    """Return the settings of a running daemon, changed by what was given on this command line.

    Args:
        context: The context of a command with all settings as options.
        values: The values of these options.
        pid: The daemon's process ID; None if none runs: then the settings are those of `values`.
    """
    running = None if pid is None else _read_settings(pid)
    if running is None:
        return settings_from(values)
    given = {name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return settings_from({**running, **{name: values[name] for name in given}})


@click.command(_COMMAND)
@with_settings(*SETTINGS)
def _serve(**_: object) -> None: ...


def _read_settings(pid: int) -> Mapping[str, Any] | None:
    """Return the values of a daemon's options from its command line, its environment and its file.

    None if it has just ended, or if its file is invalid by now.
    """
    process = Path("/proc", str(pid))
    try:
        words = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")[:-1]]
        variables = [os.fsdecode(entry) for entry in (process / "environ").read_bytes().split(b"\0")[:-1]]
        arguments = words[words.index(_COMMAND) + 1 :]
        with _environment(dict(entry.split("=", 1) for entry in variables if "=" in entry)):
            return _serve.make_context(_COMMAND, arguments).params
    except (OSError, ValueError, click.ClickException):
        return None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace the variables of settings by those of another process; click reads them from this process."""
    before = dict(os.environ)
    names = {name for setting in SETTINGS for name in setting.variables} | {f"{_PREFIX}CONFIG"}
    try:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: variables[name] for name in names & variables.keys()})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
