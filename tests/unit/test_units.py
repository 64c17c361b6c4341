# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The units of a further instance are those of the first but for the names; what they set for the daemon."""

from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "docker/systemd"
NAMES = (
    ("cni-bridge-admin@%i.", "cni-bridge-admin."),
    ("cni-bridge@%i.", "cni-bridge."),
    ("/cni-bridge-%i", "/cni-bridge"),
    ("=cni-bridge-%i", "=cni-bridge"),
    ("/%i.sock", "/cni-bridge.sock"),
    (", instance %i", ""),
)
OPTIONS = (
    "--config /etc/cni-bridge/%i.toml --socket /run/docker/plugins/%i.sock --state-dir /var/lib/cni-bridge-%i "
    "--run-dir /run/cni-bridge-%i"
)


@pytest.mark.parametrize("name", ["cni-bridge.service", "cni-bridge.socket", "cni-bridge-admin.socket"])
def test_the_units_of_an_instance(name: str) -> None:
    """Each setting is the same; the service's command names the instance's own files."""
    stem, _, kind = name.rpartition(".")
    template = (UNITS / f"{stem}@.{kind}").read_text("utf-8")
    if kind == "service":
        assert template.count(f" serve {OPTIONS}\n") == 1
        template = template.replace(f" {OPTIONS}", "")
    for instance, first in NAMES:
        template = template.replace(instance, first)
    assert "%i" not in template
    assert _settings(template) == _settings((UNITS / name).read_text("utf-8"))


def test_a_plugin_is_killed_for_memory_before_the_daemon() -> None:
    """And then the daemon goes on, to undo what the plugin had begun."""
    settings = _settings((UNITS / "cni-bridge.service").read_text("utf-8"))
    assert {"OOMPolicy=continue", "OOMScoreAdjust=-500"} <= set(settings)


def _settings(unit: str) -> list[str]:
    return [line for line in unit.splitlines() if line and not line.startswith("#")]
