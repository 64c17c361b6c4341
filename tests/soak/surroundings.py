# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a soak's host has besides Docker: links for the lists, who reads the daemon's log, and a stranger."""

import fcntl
import signal
import time
from collections.abc import Collection, Iterator
from typing import Final

from cni_bridge_spec import find_str, get_objects, parse_json
from tests.lab import Lab
from tests.lab.lab import DAEMON_COMMAND
from tests.lab.process import Process
from tests.soak.lists import CANDIDATES, DEVICE, DEVICE_MAC, DEVICE_SETUP, SETUP
from tests.soak.trouble import Trouble
from tests.system.strangers import NAMESPACE, USER

__all__ = ["LOG_READER", "Surroundings"]

LOG_READER: Final = "sh"
_PIPE: Final = "/run/lab/daemon.pipe"
_PIPE_BYTES: Final = 4096
"""The size of the smallest pipe: it is full after some fifteen lines."""

_RETURNED_S: Final = 10.0
_PAUSE_S: Final = 0.5

_STRANGER: Final = r"""
odd=$(printf '\377\376x')
ip link add "$odd" type veth peer name odd-end
ip link property add dev "$odd" altname "${odd}y"
while ip link add forged type veth peer name forged-end && ip link set forged up; do
    printf 'address add %s dev forged\n' "$@" | ip -batch - || :
    for round in $(seq 50); do
        sed -n 's|.* /run/cni-bridge/[a-z]*/\([0-9a-f]*\) .*|link property add dev forged altname cni-bridge-\1|p' \
            /proc/self/mountinfo | ip -force -batch - 2>/dev/null || :
        for i in $(seq 20); do
            printf 'link add pass%s type veth peer name peer%s\nlink delete pass%s\n' "$i" "$i" "$i"
        done | ip -batch -
        sleep 0.5
    done
    ip link delete forged
done
"""
"""What a stranger does. IDs of attachments can be read in `/proc/self/mountinfo`; those that are forged stay for a
while when their endpoint is gone. The pause leaves most of the CPU to others."""


class Surroundings:
    """What is started before the daemon, and after a reboot again.

    Args:
        lab: The lab.
        troubles: Whether there is a stranger, and whether the log is read all the time.

    Attributes:
        daemon_command: The daemon's command, whose log goes to a pipe.
    """

    def __init__(self, lab: Lab, troubles: Collection[Trouble]) -> None:
        self._lab = lab
        self._troubles = troubles
        self._reader: Process | None = None
        self.daemon_command = ("sh", "-c", f'exec "$0" "$@" >{_PIPE} 2>&1', *DAEMON_COMMAND)

    def start(self) -> None:
        """Make the links, and start the reader and the stranger."""
        self._lab.run("sh", "-c", f"{SETUP}\n{DEVICE_SETUP}\n[ -e {_PIPE} ] || mkfifo {_PIPE}")
        self._reader = self._lab.spawn(LOG_READER, "-c", f"exec cat <>{_PIPE}")  # it does not end with the daemon
        with self._lab.path(_PIPE).open("wb") as pipe:  # waits for the reader
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        if Trouble.STRANGER in self._troubles:
            addresses = sorted(address for of in CANDIDATES.values() for address in of)
            self._lab.spawn(*USER, *NAMESPACE, _STRANGER, "stranger", *addresses)

    def read_log(self, *, is_read: bool) -> None:
        """Have the daemon's log read from now on, or not."""
        assert self._reader is not None
        self._reader.kill(signal.SIGCONT if is_read or Trouble.LOG not in self._troubles else signal.SIGSTOP)

    def ensure_device(self) -> str:
        """Make the device for `host-device` again if dockerd has removed the namespace that it was in.

        Only called when no running container should have it.

        Returns:
            What was left of the device, "" if it is there or comes back within some seconds.
        """
        deadline = time.monotonic() + _RETURNED_S
        while self._lab.run("ip", "link", "show", DEVICE, check=False).returncode != 0:
            if time.monotonic() > deadline:
                left = self._lab.run("ip", "-details", "link", "show", f"{DEVICE}-end", check=False).stdout
                self._lab.run("ip", "link", "delete", f"{DEVICE}-end", check=False)
                self._lab.run("sh", "-c", DEVICE_SETUP)
                return " ".join(left.split()) or "nothing"
            time.sleep(_PAUSE_S)
        return ""

    def device_faults(self) -> Iterator[str]:
        """Yield what is not as before in the device for `host-device`, which no container uses."""
        printed = self._lab.run("ip", "-json", "link", "show", DEVICE, check=False).stdout
        for found in get_objects({"links": parse_json(printed.encode() or b"[{}]")}, "links"):
            name, mac = find_str(found, "ifname"), find_str(found, "address")
            if (name, mac) != (DEVICE, DEVICE_MAC) or "altnames" in found:
                yield f"device {DEVICE} is {name or 'not there'}, MAC {mac}, other names {found.get('altnames')}"
