# SPDX-License-Identifier: Apache-2.0
"""Limits on plugins: time, output, and how many run at once."""

import os
from dataclasses import dataclass, field, fields
from typing import Final, assert_never

from cni_invoker.protocol import Verb

_DHCP: Final = "dhcp"
_OPTIONAL: Final = frozenset({"descriptors", "dhcp_s", "oom_score"})


def _executions() -> int:
    # Measured with bridge: throughput is best at two executions per CPU, and falls when many more compete.
    return 2 * len(os.sched_getaffinity(0))


def _require(name: str, limit: object) -> None:
    """Raise an error if this cannot be the limit of that name."""
    numbers = limit if name == "retry_pauses_s" and isinstance(limit, tuple) else (limit,)
    for number in numbers:
        if number is None and name in _OPTIONAL:
            continue
        if not isinstance(number, float | int) or isinstance(number, bool):
            raise TypeError(f"the limit {name} must be a number, not the {type(number).__name__} {number!r:.100}")
        if number < (1 if name == "executions" else 0):
            raise ValueError(f"the limit {name} is too small: {number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a `Runtime`.

    Attributes:
        add_s: Limit for one plugin's ADD, in seconds, from its start.
        dhcp_s: A shorter limit for ADD of a plugin whose IPAM plugin is `dhcp`, which waits for minutes if no server
            answers; None: `add_s`.
        delete_s: Limit for one plugin's DEL. It is independent of the ADD before it.
        check_s: Limit for one plugin's CHECK.
        port_s: Extra time for ADD, DEL and CHECK per port that the plugin publishes. `portmap` runs iptables several
            times per port, which takes longer the more rules there are (measured with 1.9.1 on two processors: 10 s for
            300 ports, more than a minute for 1000).
        ports_s: Upper limit of the extra time for ports, so that a plugin that hangs is always killed eventually.
        gc_s: Limit for one plugin's GC.
        status_s: Limit for one plugin's STATUS, which should be quick.
        version_s: Limit for one plugin's VERSION, which should do no work.
        wait_s: How long an operation waits for other operations on the same container or for GC on the same network,
            and an execution for a free slot.
        retry_pauses_s: Pauses before each retry of a plugin that reports "try again later" (error code 11).
        grace_s: Time between SIGTERM and SIGKILL; also how long a process that the plugin left behind may keep its
            output open.
        text_busy_s: How long to retry starting a plugin whose file is being written (ETXTBSY).
        stdout_bytes: How much standard output is kept. A result has some kilobytes; more than this is an error.
        stderr_bytes: How much standard error is kept, from its end.
        stderr_lines: How many lines of that an error shows. With 0, errors quote nothing but a CNI error: what a plugin
            writes besides may contain credentials. It is logged at level debug all the same.
        executions: How many plugins of one network run at once for DEL, and as many for everything else. All networks
            together run as many, and half as many more that are the only ones of their network. Those that have run for
            two seconds are not counted there, so that plugins that hang on one network do not stop the others. It does
            not apply where the caller limits that itself.
        descriptors: The plugin's soft limit of open descriptors, for a caller that has raised its own; None: inherited.
            A high limit breaks programs that use select(2) and slows those that close all possible descriptors.
        oom_score: The plugin's `oom_score_adj` (proc(5)), for a caller that has lowered its own to be spared; None:
            inherited. A plugin that uses up the memory should be killed before others.

    Raises:
        TypeError: A limit is not a number.
        ValueError: A limit is negative, or no plugin could ever run.
    """

    add_s: float = 60.0
    dhcp_s: float | None = None
    delete_s: float = 60.0
    check_s: float = 60.0
    port_s: float = 0.25
    ports_s: float = 600.0
    gc_s: float = 60.0
    status_s: float = 10.0
    version_s: float = 10.0
    wait_s: float = 120.0
    retry_pauses_s: tuple[float, ...] = (0.1, 0.5, 2.0)
    grace_s: float = 2.0
    text_busy_s: float = 5.0
    stdout_bytes: int = 4 << 20
    stderr_bytes: int = 64 << 10
    stderr_lines: int = 20
    executions: int = field(default_factory=_executions)
    descriptors: int | None = None
    oom_score: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            _require(one.name, getattr(self, one.name))

    def timeout_s(self, verb: Verb, ports: int = 0, *, ipam: str | None = None) -> float:
        """Return the limit for one execution of `verb`, in seconds.

        Args:
            verb: The operation.
            ports: The number of ports to publish.
            ipam: The type of the plugin's IPAM plugin, None if it has none.
        """
        ports_s = min(ports * self.port_s, self.ports_s)
        match verb:
            case Verb.ADD:
                add_s = self.add_s + ports_s
                return add_s if ipam != _DHCP or self.dhcp_s is None else min(add_s, self.dhcp_s)
            case Verb.DEL:
                return self.delete_s + ports_s
            case Verb.CHECK:
                return self.check_s + ports_s
            case Verb.GC:
                return self.gc_s
            case Verb.STATUS:
                return self.status_s
            case Verb.VERSION:
                return self.version_s
            case _:
                assert_never(verb)
