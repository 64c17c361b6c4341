# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host of docs/hosts.md: its recipes as they are printed, with the values of the first or the second host."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.lab import Lab, LabError
from tests.lab.process import Process
from tests.managed_plugin.managed import install
from tests.pages import read_blocks

__all__ = ["Host"]

_PAGE: Final = Path(__file__).parents[2] / "docs" / "hosts.md"
_PROGRAMS: Final = Path("/usr/lib/frr")
_RUN: Final = "/run/frr"
_CONFIGURATION: Final = f"{_RUN}/frr.conf"
_DAEMONS: Final = ("zebra", "bgpd")


@dataclass(slots=True)
class Host:
    """One of two linked hosts.

    Attributes:
        lab: Its lab.
        others: What stands on the page → what this host has instead; nothing for the first host.
    """

    lab: Lab
    others: dict[str, str]
    _frr: list[Process] = field(default_factory=list)

    def set_up(self, section: str) -> None:
        """Type the recipe of a section, install the managed plugin, and make the network of settings.

        FRR runs without the service manager, with its files in /run, which is the lab's own.
        """
        name = section.lower()
        for text in self._blocks("frr", section):
            self.lab.write(_CONFIGURATION, text)
        (conflist,) = self._blocks("json", section)
        self.lab.write(f"/etc/cni/net.d/10-{name}.conflist", conflist)
        for commands in self._blocks("sh", section):
            self.lab.run("sh", "-e", "-c", commands)
        self.start_frr()
        install(self.lab)
        options = ("--config-only", "--ipam-driver", "null", "-o", f"cni.network={name}")
        self.lab.docker("network", "create", *options, f"{name}-node")

    def start_frr(self) -> None:
        """Start FRR's daemons, which also write into /var/tmp, if the recipe has a configuration for them."""
        if not self.lab.path(_CONFIGURATION).exists():
            return
        if not shutil.which("zebra", path=str(_PROGRAMS)):
            raise LabError("FRR is not installed: make test-hosts installs it")
        self.lab.run("sh", "-c", f"mountpoint -q /var/tmp || mount -t tmpfs none /var/tmp; chown -R frr:frr {_RUN}")
        for name in _DAEMONS:
            files = ("-f", _CONFIGURATION, "-i", f"{_RUN}/{name}.pid", "-z", f"{_RUN}/zserv.api")
            program = str(_PROGRAMS / name)
            self._frr.append(self.lab.spawn(program, *files, "--vty_socket", _RUN))

    def kill_frr(self) -> None:
        """Kill FRR's daemons."""
        for process in self._frr:
            process.kill()
            process.wait()
        self._frr.clear()

    def _blocks(self, language: str, section: str) -> list[str]:
        """Return the blocks of a language in a section, with this host's values."""
        return [self._replaced(block.text) for block in read_blocks(_PAGE, language, section=section)]

    def _replaced(self, text: str) -> str:
        # via a word that is nowhere, because two values may change places
        for number, value in enumerate(self.others):
            text = text.replace(value, f"\0{number}\0")
        for number, value in enumerate(self.others.values()):
            text = text.replace(f"\0{number}\0", value)
        return text
