# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host of docs/hosts.md: its recipes as they are printed, with the values of the first or the second host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.hosts.engines import ENGINES, FRR_CONFIGURATION, start, wait_ready
from tests.lab import Lab, LabError, wait_until
from tests.lab.process import Process
from tests.managed_plugin.managed import install
from tests.pages import read_blocks

_ROOT: Final = Path(__file__).parents[2]
_PAGE: Final = _ROOT / "docs" / "hosts.md"
_OVN_PLUGIN: Final = _ROOT / "docker" / "examples" / "ovn"
_LIMIT_S: Final = 30.0


@dataclass(slots=True)
class Host:
    """One of two linked hosts.

    Attributes:
        lab: Its lab.
        section: The section of the page.
        others: What stands on the page → what the second host has instead; None for the first host.
    """

    lab: Lab
    section: str
    others: Mapping[str, str] | None = None
    _daemons: list[Process] = field(default_factory=list)

    def set_up(self) -> None:
        """Type the recipe of the section, install the managed plugin, and make the network of settings.

        The first commands of OVN are typed on the first host only, and the last ones of each recipe again after each
        start of the engine.
        """
        name = self.section.lower()
        for text in self._blocks("frr"):
            self.lab.write(FRR_CONFIGURATION, text)
        (conflist,) = self._blocks("json")
        self.lab.write(f"/etc/cni/net.d/10-{name}.conflist", conflist)
        self.lab.write("/opt/cni/bin/ovn", _OVN_PLUGIN.read_text(), mode=0o755)
        commands = self._blocks("sh")
        self._start_daemons()
        for number, block in enumerate(commands):
            if number == len(commands) - 1:
                wait_until(partial(self._type, block), "the last commands of the recipe", _LIMIT_S, poll_s=1.0)
            elif number > 0 or self.others is None or self.section != "OVN":
                self.lab.run("sh", "-e", "-c", block)
        install(self.lab)
        self.make_network(0)

    def make_network(self, step: int = 1) -> None:
        """Type the commands at the beginning of the page: 0, the network of settings; 1, the network of the swarm."""
        block = read_blocks(_PAGE, section="")[step]
        self.lab.run("sh", "-e", "-c", block.text.replace("routed", self.section.lower()))

    def start_engine(self) -> None:
        """Start the engine's daemons again."""
        self._start_daemons()
        for block in self._blocks("sh")[-1:]:
            wait_until(partial(self._type, block), "the last commands of the recipe", _LIMIT_S, poll_s=1.0)

    def kill_engine(self) -> None:
        """Kill the engine's daemons, which have run until now."""
        for daemon in self._daemons:
            if daemon.returncode is not None:
                raise LabError(f"{daemon.name} ended with status {daemon.returncode}; its log ends:\n{daemon.tail()}")
            daemon.kill()
            daemon.wait()
        self._daemons.clear()

    def _start_daemons(self) -> None:
        if self.section in ENGINES:
            commands = ENGINES[self.section](self.lab, is_first=self.others is None)
            self._daemons += [start(self.lab, command) for command in commands]
            wait_ready(self.lab, commands)

    def _type(self, commands: str) -> bool:
        return self.lab.run("sh", "-e", "-c", commands, check=False).returncode == 0

    def _blocks(self, language: str) -> list[str]:
        """Return the blocks of a language in the section, with this host's values."""
        found = [block.text for block in read_blocks(_PAGE, language, section=self.section)]
        return [_replaced(text, self.others or {}) for text in found]


def _replaced(text: str, others: Mapping[str, str]) -> str:
    # via a word that is nowhere, because two values may change places
    for number, value in enumerate(others):
        text = text.replace(value, f"\0{number}\0")
    for number, value in enumerate(others.values()):
        text = text.replace(f"\0{number}\0", value)
    return text
