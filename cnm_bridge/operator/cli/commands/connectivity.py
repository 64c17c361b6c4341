# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge test`: whether containers on a network reach what they should."""

import json
import shutil
import signal
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import get_objects, get_str, get_strings
from cni_invoker import CniError, ConfigurationDirectories
from cni_invoker.documents.printable import printable
from cnm_bridge.core.errors import BadOption, Refused, UnknownName, did_you_mean
from cnm_bridge.core.lists.guard import RESPONDER, is_guard, with_guard
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError, start_command
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.daemon_settings import finds_settings
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.output import fold, terminal_width, with_json
from cnm_bridge.operator.connectivity.pair import DockerCommand, Pair
from cnm_bridge.operator.connectivity.probe import LOOK_AT, Guard, Outcome, Step, run_steps

_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a stop by a service manager, a terminal that is closed."""
_DETAIL: Final = 20
"""Where the detail of a step begins, in columns."""
_NOT_TESTED: Final = frozenset({"none", "host"})
"""Docker's networks that are never meant."""


@click.command(
    "test",
    cls=Command,
    examples=("test blue", "test --outside 192.0.2.1 blue", "test --json blue"),
)
@click.option("--outside", metavar="ADDRESS", help="An address beyond the host.  [default: the host's router]")
@click.argument("network")
@finds_settings
@with_json
def test(settings: Settings, *, outside: str | None, network: str, as_json: bool) -> ExitStatus:
    """Start two containers on NETWORK, and test what they reach: each other, gateway, outside, names, a port.

    A guarded network refuses its gateway and the outside. There, a connection that its allow-list has is tested, and
    one that it has not.

    The image is made from the host's static busybox; nothing is downloaded. Everything is removed at the end, also
    after a failure, after Ctrl-C, and when the terminal is closed.
    """
    steps = _run(settings, network, outside, (lambda _: None) if as_json else _show)
    failed = [step for step in steps if step.outcome is Outcome.FAILED]
    if as_json:
        rows = [{"step": one.name, "result": one.outcome.value, "detail": one.detail} for one in steps]
        echo(json.dumps(rows, indent=2))
    else:
        for step in failed:
            echo(f"\n{step.name} failed; look at {LOOK_AT[step.name].replace('NETWORK', network)}")
    return ExitStatus.FINDINGS if failed else ExitStatus.FINE


def _show(step: Step) -> None:
    echo(fold(f"{step.outcome:<8} {step.name:<10} {printable(step.detail)}", terminal_width(), hang=_DETAIL))


def _run(settings: Settings, network: str, outside: str | None, show: Callable[[Step], None]) -> list[Step]:
    """Run all steps, and clean up, also if one of `_ENDS` interrupts them; show each as it ends, and return all."""
    try:
        target = None if outside is None else ip_address(outside)
    except ValueError as exc:
        raise BadOption("--outside", f"{outside} is not an IP address") from exc
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Refused("there is no busybox in PATH: apt-get install busybox-static")
    docker = DockerCommand(settings.docker_host)
    no_ports, guard = examine(docker, settings, network)
    pair = Pair(
        docker,
        network,
        publishes=not no_ports,
        is_torn_down=partial(_are_torn_down, settings.admin_path),
        name_server=None if guard is None else guard.name_server,
    )
    steps: list[Step] = []

    def add(step: Step) -> None:
        steps.append(step)
        show(step)

    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # such as SIGHUP after nohup
            signal.signal(number, signal.default_int_handler)
    try:
        for step in run_steps(pair, Path(busybox), outside=target, no_ports=no_ports, guard=guard):
            add(step)
    except KeyboardInterrupt:
        steps.append(Step(name="interrupt", outcome=Outcome.FAILED, detail="the other steps were left out"))
    finally:
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)
        left = pair.remove()
    add(
        Step(name="cleanup", outcome=Outcome.FAILED if left else Outcome.PASSED, detail=left or "everything is removed")
    )
    return steps


def examine(docker: DockerCommand, settings: Settings, network: str) -> tuple[str, Guard | None]:
    """Return why a network publishes no ports, "" if it does; and how it is guarded, None if it is not.

    Raises:
        Refused: Docker has no such network, or does not answer.
        DaemonError: No daemon runs.
    """
    shown = docker.run("network", "inspect", network)
    if not shown.succeeded:
        listed = docker.run("network", "ls", "--format", "{{.Name}}")
        if not listed.succeeded:
            raise Refused(f"docker network ls: {listed.error}")
        known = set(listed.output.split()) - _NOT_TESTED
        hint = did_you_mean(network, known, "`docker network ls` shows all", cutoff=0.6)
        raise UnknownName(f"Docker has no network {network}; {hint}")
    document = json.loads(shown.output)[0]
    if document["Driver"] != settings.driver_name:
        return "", None
    _refuse_without_daemon(docker, settings)
    options = parse_options(document["Options"] or {})
    try:
        configuration = (
            ConfigurationDirectories(settings.cni_conf_dirs).index().find(options.configuration or document["Name"])
        )
    except CniError as exc:
        raise Refused(str(exc)) from exc
    wanted = options.egress
    guards = [one.document for one in with_guard(configuration, wanted.allow, audit=wanted.audit).plugins]
    guards = [one for one in guards if is_guard(one)]
    guard = None
    if guards:
        guard = Guard(
            entries=get_strings(guards[0], "allow") if "allow" in guards[0] else (),
            name_server=None if document["Internal"] else RESPONDER,
            is_audited=guards[0].get("audit") is True,
        )
    publishes = any("portMappings" in plugin.capabilities for plugin in configuration.plugins)
    return "" if publishes else "no plugin of the list publishes ports", guard


def _refuse_without_daemon(docker: DockerCommand, settings: Settings) -> None:
    """Refuse to test a network whose driver no program serves: Docker would look for it for 15 s.

    Not if the engine is elsewhere, or has the driver as a managed plugin, whose sockets need not be on the host.
    """
    if not settings.docker_host.startswith("unix://") or any(map(_may_listen, (settings.socket, settings.admin_path))):
        return
    if not docker.run("plugin", "inspect", settings.driver_name).succeeded:
        raise DaemonError(
            f"no daemon runs, so no container would start; start it: {start_command()}", ExitStatus.NO_DAEMON
        )


def _may_listen(path: Path) -> bool:
    """Return whether a program listens at a socket, as far as this user can see."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            pass
        return True


def _are_torn_down(admin_socket: Path, endpoints: frozenset[str]) -> bool:
    """Return whether the daemon knows none of these endpoints; without a daemon, Docker's own answer counts."""
    try:
        status = AdminClient(admin_socket).get("status")
    except DaemonError:
        return True
    return endpoints.isdisjoint(get_str(endpoint, "id") for endpoint in get_objects(status, "endpoints"))
