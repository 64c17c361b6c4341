# SPDX-License-Identifier: Apache-2.0
"""Limits on plugins: time, output, and how many run at once (`slots`)."""

import os
from dataclasses import dataclass, field
from typing import Final, assert_never

from cni_invoker.documents.versions import Verb

_DHCP: Final = "dhcp"


def _executions() -> int:
    # Measured with bridge: throughput is best at two executions per CPU, and falls when many more compete.
    return 2 * len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a `Runtime`.

    Attributes:
        add_s: Limit for one plugin's ADD, in seconds, from its start.
        dhcp_s: A shorter limit for ADD with the IPAM plugin `dhcp`, which waits for minutes if no server answers.
        delete_s: Limit for one plugin's DEL.
        check_s: Limit for one plugin's CHECK.
        port_s: Extra time for ADD, DEL and CHECK per port that the plugin publishes (`portmap` 1.9.1 took 10 s for 300
            ports on two processors, more than a minute for 1000).
        ports_s: Upper limit of the extra time for ports.
        gc_s: Limit for one plugin's GC.
        status_s: Limit for one plugin's STATUS.
        version_s: Limit for one plugin's VERSION.
        wait_s: How long an operation waits for other operations on the same container or for GC on the same network,
            and an execution for a free slot.
        retry_pauses_s: Pauses before each retry of a plugin that reports "try again later" (error code 11).
        grace_s: Time between SIGTERM and SIGKILL, and for a process that keeps the output open after the plugin's end.
        stdout_bytes: How much standard output is kept; a longer result is an error.
        result_entries: How many links, addresses and routes a result may have; None: any number.
        stderr_bytes: How much standard error is kept, from its end.
        stderr_lines: How many lines of that an error shows. With 0, errors quote nothing but a CNI error, because the
            rest may contain credentials; it is logged at level debug.
        executions: How many plugins of one network run at once for DEL, and as many for everything else. All networks
            together run at most as many that began in the last two seconds, and half as many more, each as the only one
            of its network.
        descriptors: The plugin's soft limit of open descriptors, for a caller that has raised its own; None: inherited.
        oom_score: The plugin's `oom_score_adj` (proc(5)), for a caller that has lowered its own; None: inherited.

    Raises:
        ValueError: No plugin could ever run.
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
    stdout_bytes: int = 4 << 20
    result_entries: int | None = None
    stderr_bytes: int = 64 << 10
    stderr_lines: int = 20
    executions: int = field(default_factory=_executions)
    descriptors: int | None = None
    oom_score: int | None = None

    def __post_init__(self) -> None:
        if self.executions < 1:
            raise ValueError(f"no plugin could run: the limit executions is {self.executions}")

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
