# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Changes settings that new links of a sandbox start with, while plugins make a link there.

The container may be running, so the settings get their values back, also if the daemon is killed in between: the values
are in a file beside the pin before the first one is changed. Like the sandbox, the file does not survive a reboot.
It exists until the link is marked: while it does, plugins may have made one that is not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cnm_bridge.system.kernel.sysctl import has_ipv6, read_setting, write_setting

ACCEPT_DAD: Final = "net/ipv6/conf/default/accept_dad"

_FOR_PLUGINS: Final = {ACCEPT_DAD: "0", "net/ipv6/conf/default/disable_ipv6": "0"}
"""`ptp` and `macvlan` wait up to 2 s for duplicate address detection, and with IPv6 disabled (`--sysctl
net.ipv6.conf.all.disable_ipv6=1`) no plugin can add an IPv6 address."""


class LinkDefaults:
    """The settings of a pinned sandbox. Its methods are called in a thread that has entered the sandbox.

    Args:
        pin: The pin.
    """

    def __init__(self, pin: Path) -> None:
        self._file = pin.with_name(f"{pin.name}.settings")

    @property
    def is_pending(self) -> bool:
        """Whether `change` was called, and `forget` not yet."""
        return self._file.exists()

    def change(self) -> None:
        """Change the settings for plugins. If they have been changed before, the first values are kept."""
        if self.is_pending:
            return
        found = {name: read_setting(name) for name in _FOR_PLUGINS} if has_ipv6() else {}
        previous = {name: value for name, value in found.items() if value not in {None, _FOR_PLUGINS[name]}}
        # One write: a killed daemon leaves all of them, or none and has not changed anything.
        self._file.write_text("".join(f"{name} {value}\n" for name, value in previous.items()), encoding="ascii")
        for name in previous:
            write_setting(name, _FOR_PLUGINS[name])

    def restore(self) -> Mapping[str, str]:
        """Give the settings their values back, if they have been changed; return these values by name."""
        try:
            lines = self._file.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return {}
        previous = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        for name, value in previous.items():
            write_setting(name, value)
        return previous

    def forget(self) -> None:
        """Remove the file: the settings are restored, and the link is marked, if there is one."""
        self._file.unlink(missing_ok=True)
