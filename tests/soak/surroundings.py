# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a soak's host has besides Docker: links for the lists."""

import time
from collections.abc import Iterator
from typing import Final

from cni_bridge_spec import find_str, get_objects, parse_json
from tests.lab import Lab
from tests.soak.lists import DEVICE, DEVICE_MAC, DEVICE_SETUP, SETUP

_RETURNED_S: Final = 10.0
_PAUSE_S: Final = 0.5


class Surroundings:
    """What is started before the daemon, and after a reboot again."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def start(self) -> None:
        """Make the links."""
        self._lab.run("sh", "-c", f"{SETUP}\n{DEVICE_SETUP}")

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
