# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How long a plugin may take, how much it may say, and how many run at once."""

import os
from dataclasses import dataclass, field
from typing import assert_never

from cni_invoker.verbs import Verb

__all__ = ["Limits"]


def _executions() -> int:
    # Measured with bridge: throughput is best at two executions per CPU, and falls when many more compete.
    return 2 * len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a `Runtime`.

    Attributes:
        add_s: How long one plugin may take for ADD, in seconds, from when it starts.
        delete_s: The same for DEL. Each execution has a limit of its own, so that DEL has all of it after an ADD that
            used up all of its.
        check_s: The same for CHECK.
        port_s: How much longer each of these three may take for each port that the plugin publishes. `portmap` runs
            iptables several times per port, which takes longer the more rules there are (measured with 1.9.1 on two
            processors: 300 ports take 10 s, and 1000 more than a minute).
        ports_s: The most that is added for ports, however many they are: a plugin that hangs must end some time.
        gc_s: The same for GC.
        status_s: The same for STATUS, which should not do much.
        version_s: The same for VERSION, which should do nothing.
        wait_s: How long an operation waits for others on the same container or for GC on the same network, and each
            execution for its turn.
        retry_pauses_s: The pauses after which a plugin is asked again that said "try again later" (error code 11).
        grace_s: How long a plugin has to end after SIGTERM before it gets SIGKILL; also how long a process it left
            behind may keep its output open after its end.
        text_busy_s: How long to try again to start a plugin whose file is just being written (ETXTBSY).
        stdout_bytes: How much of the standard output is kept. A result is some kilobytes; more than this is an error.
        stderr_bytes: How much of the standard error, from its end, is kept.
        stderr_lines: How many lines of that an error shows.
        executions: How many plugins run at once for DEL, and for everything else; where the caller of a DEL limits that
            itself it does not count.
        descriptors: The soft limit of open descriptors that a plugin gets, for a caller that has raised its own; None
            leaves it the caller's. Programs that use select(2), or close all descriptors that they might have, do
            badly with a high one.
    """

    add_s: float = 60.0
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

    def timeout_s(self, verb: Verb, ports: int = 0) -> float:
        """Return how long one execution for `verb` may take, in seconds, of a plugin that is given so many ports."""
        ports_s = min(ports * self.port_s, self.ports_s)
        match verb:
            case Verb.ADD:
                return self.add_s + ports_s
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
