# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""iptables rules that tell in a comment whose they are: those of masquerading and of port mappings.

As iptables-save prints them (plugins `pkg/utils`, FormatComment; `meta/portmap`):

```
-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"lan\" id: \"77ad…\"" -j CNI-0a1b…
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"lan\" id: \"77ad…\"" -m multiport … -j CNI-DN-2c3d…
```
"""

import asyncio
import re
import subprocess
from collections.abc import Sequence
from typing import Final

import structlog

from cnm_bridge.traces.trace import Trace

__all__ = ["find_rules", "parse_rules"]

log = structlog.get_logger()

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_LIMIT_S: Final = 10.0
_OWNED: Final = re.compile(r'^-A .*--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


async def find_rules(commands: Sequence[str] = _COMMANDS) -> tuple[Trace, ...]:
    """Return the rules that tell a container ID; none where the tables cannot be read."""
    saved = [await asyncio.to_thread(_save, command) for command in commands]
    return tuple(rule for text in saved for rule in parse_rules(text))


def parse_rules(text: str) -> tuple[Trace, ...]:
    """Return the rules that tell a container ID in what iptables-save printed."""
    found = ((line, _OWNED.match(line)) for line in text.splitlines())
    return tuple(
        Trace(network=match["network"], container_id=match["id"], what=line)
        for line, match in found
        if match is not None
    )


def _save(command: str) -> str:
    try:
        return subprocess.run(
            [command, "-t", "nat"], capture_output=True, check=True, text=True, timeout=_LIMIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as exc:
        log.debug("rules.unread", command=command, error=str(exc))
        return ""
