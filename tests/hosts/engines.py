# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemons of a network engine on a lab, started without a service manager."""

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from tests.lab import Lab, LabError, wait_until
from tests.lab.process import Process

Command = Sequence[str]

FRR_CONFIGURATION: Final = "/run/frr/frr.conf"
_PROGRAMS: Final = "/usr/lib/frr:/usr/sbin:/usr/bin"
_DATABASES: Final = {"nb": "OVN_Northbound,NB_Global", "sb": "OVN_Southbound,SB_Global"}
_OVS: Final = "unix:/run/openvswitch/db.sock"
_LIMIT_S: Final = 30.0


def start(lab: Lab, command: Command) -> Process:
    """Start a daemon."""
    program = shutil.which(command[0], path=_PROGRAMS)
    if program is None:
        raise LabError(f"{command[0]} is not installed: make test-hosts installs it")
    return lab.spawn(program, *command[1:])


def frr(lab: Lab, *, is_first: bool) -> Sequence[Command]:  # noqa: ARG001 - all hosts have the same
    """Return FRR's daemons, which also write into /var/tmp."""
    lab.run("sh", "-c", "mountpoint -q /var/tmp || mount -t tmpfs none /var/tmp; chown -R frr:frr /run/frr")
    files = ("-f", FRR_CONFIGURATION, "-z", "/run/frr/zserv.api", "--vty_socket", "/run/frr")
    return [(name, *files, "-i", f"/run/frr/{name}.pid") for name in ("zebra", "bgpd")]


def ovn(lab: Lab, *, is_first: bool) -> Sequence[Command]:
    """Return the daemons of ovn-host, and on the first host those of ovn-central; their databases exist then."""
    _make_database(lab, "/etc/openvswitch/conf.db", "openvswitch/vswitch", _named(str(uuid4())))
    commands: list[Command] = []
    for name, connections in _DATABASES.items() if is_first else ():
        _make_database(lab, f"/var/lib/ovn/{name}.db", f"ovn/ovn-{name}")
        sockets = (f"--remote=punix:/run/ovn/ovn{name}_db.sock", f"--unixctl=/run/ovn/ovn{name}_db.ctl")
        commands.append(("ovsdb-server", *sockets, f"--remote=db:{connections},connections", f"/var/lib/ovn/{name}.db"))
    if is_first:
        commands.append(("ovn-northd", "--unixctl=/run/ovn/northd.ctl"))
    sockets = ("--remote=punix:/run/openvswitch/db.sock", "--unixctl=/run/openvswitch/db.ctl")
    return [
        *commands,
        ("ovsdb-server", *sockets, "/etc/openvswitch/conf.db"),
        ("ovs-vswitchd", "--unixctl=/run/openvswitch/vswitchd.ctl", _OVS),
        ("ovn-controller", _OVS),
    ]


def wait_ready(lab: Lab, commands: Sequence[Command]) -> None:
    """Wait until the databases of the daemons answer."""
    started = " ".join(word for command in commands for word in command)
    for tool, socket in (("ovs-vsctl", _OVS), ("ovn-nbctl", "ovnnb_db.sock"), ("ovn-sbctl", "ovnsb_db.sock")):
        if socket in started:
            command = (tool, "--timeout=5", *(["--no-wait"] if socket == _OVS else []), "init")
            wait_until(partial(_succeeds, lab, command), f"{tool} init", _LIMIT_S)


def _succeeds(lab: Lab, command: Command) -> bool:
    return lab.run(*command, check=False).returncode == 0


def _named(system_id: str) -> str:
    """Return the row that Debian's package makes at the first start; ovn-controller ends without it."""
    row = {"external_ids": ["map", [["system-id", system_id]]]}
    return json.dumps(["Open_vSwitch", {"op": "insert", "table": "Open_vSwitch", "row": row}])


def _make_database(lab: Lab, path: str, schema: str, row: str = "") -> None:
    """Make a database with a row, unless it is from an earlier start."""
    make = f"ovsdb-tool create {path} /usr/share/{schema}.ovsschema"
    if row:
        make += f"; ovsdb-tool transact {path} {shlex.quote(row)}"
    directories = f"mkdir -p /run/ovn /run/openvswitch $(dirname {path})"
    lab.run("sh", "-e", "-c", f"{directories}; if [ ! -e {path} ]; then {make}; fi")


ENGINES: Final[Mapping[str, Callable[..., Sequence[Command]]]] = {"Routed": frr, "Stretched": frr, "OVN": ovn}
"""Section of docs/hosts.md → the daemons of its engine."""
