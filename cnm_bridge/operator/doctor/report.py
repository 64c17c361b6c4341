# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Examines facts, and renders the findings. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Self

from cni_bridge_spec import JsonObject
from cni_invoker.documents.printable import printable
from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts, Finding, Severity
from cnm_bridge.operator.doctor.firewall import check_firewall
from cnm_bridge.operator.doctor.guarded import check_guarded
from cnm_bridge.operator.doctor.installation import check_installation
from cnm_bridge.operator.doctor.iptables_rules import FilterTable
from cnm_bridge.operator.doctor.links import check_links
from cnm_bridge.operator.doctor.networks import check_networks
from cnm_bridge.operator.doctor.platform import check_engine, check_kernel

_CHECKS: Final = (
    check_kernel,
    check_engine,
    check_firewall,
    check_networks,
    check_guarded,
    check_links,
    check_installation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was examined, and what was found.

    Attributes:
        findings: What is wrong, the most important first.
    """

    examined: Sequence[tuple[str, str]]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Examine a host."""
        order = list(Severity)
        findings = [finding for check in _CHECKS for finding in check(facts)]
        return cls(
            examined=tuple(_examined(facts)),
            findings=tuple(sorted(findings, key=lambda finding: order.index(finding.severity))),
        )

    @property
    def is_good(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line with the number of findings."""
        counts = dict.fromkeys(Severity, 0)
        for finding in self.findings:
            counts[finding.severity] += 1
        named = [f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items() if count]
        return ", ".join(named) or f"nothing found; examined: {', '.join(subject for subject, _ in self.examined)}"

    def render_text(self, *, quick: bool = False) -> str:
        """Return the report for a terminal.

        Args:
            quick: Whether it is for monitoring: the summary, and a line for each finding that counts.
        """
        if quick:
            counting = [finding for finding in self.findings if finding.severity is not Severity.NOTE]
            lines = [printable(f"{one.severity}: {one.subject}: {one.text}") for one in counting]
            return "\n".join((self.summary, *lines))
        width = max(len(subject) for subject, _ in self.examined)
        lines = [f"{printable(subject).ljust(width)}  {printable(text)}" for subject, text in self.examined]
        for one in self.findings:
            lines += [
                "",
                f"{one.severity.upper()}  {printable(one.subject)} ({one.code})",
                f"    {printable(one.text)}",
                *([f"    fix: {one.fix}"] if one.fix else []),
                *([f"    {'or' if one.fix else 'do'}: {one.advice}"] if one.advice else []),
            ]
        return "\n".join((*lines, "", self.summary))

    def render_json(self) -> JsonObject:
        """Return the report as JSON."""
        return {
            "examined": [{"subject": subject, "text": text} for subject, text in self.examined],
            "findings": [asdict(finding) for finding in self.findings],
        }


def _examined(facts: Facts) -> Iterator[tuple[str, str]]:
    engine, firewall = facts.engine, facts.firewall
    yield "kernel", facts.kernel
    yield "engine", f"{engine.version or 'no answer'} at {engine.address}"
    policy = "not read" if firewall.rules is None else FilterTable(firewall.rules).forward_policy
    yield "firewall", f"{firewall.iptables or 'no iptables'}; policy of FORWARD: {policy}"
    pid = facts.installation.daemon_pid
    yield "daemon", "does not run" if pid is None else f"runs as process {pid}"
    yield "configurations", f"in {', '.join(map(str, facts.conf_dirs))}"
    yield "plugins", f"in {', '.join(map(str, facts.bin_dirs))}"
    for configured in (*facts.networks, *facts.sections):
        yield configured.subject, _describe(configured)


def _describe(configured: ConfiguredNetwork) -> str:
    network = configured.network
    fills = [
        f"{one.subnet}: {one.count(configured.reserved)} of {one.size} addresses reserved"
        for one in find_ranges(network)
    ]
    plugins = f"plugins {' '.join(network.plugin_types)}"
    if configured.is_section:  # its plugin is its own IPAM plugin
        plugins = f"plugin {network.plugins[0].type}"
    return "; ".join((f"CNI {network.cni_version}, {plugins}", *fills))
