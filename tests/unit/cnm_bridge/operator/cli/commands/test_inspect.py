# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The text of `cni-bridge inspect`."""

from collections.abc import Sequence

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.commands.inspect import mend, show_inspected
from cnm_bridge.operator.cli.output import Prose, Shown, Table

ADD: JsonObject = {"time": "2026-01-02T03:04:05.000+00:00", "outcome": "success", "durationMs": 12.0}


def document(deleted_at: str) -> JsonObject:
    """Return an endpoint with one plugin, whose last DEL was at a time."""
    executions: JsonObject = {"ADD": ADD, "DEL": {**ADD, "time": deleted_at}}
    return {
        "id": "77" * 32,
        "networkId": "6f" * 32,
        "phase": "joined",
        "mode": "move",
        "configuration": "lan",
        "cniVersion": "1.0.0",
        "addresses": [],
        "ports": [],
        "sync": [],
        "args": [],
        "containerId": "77" * 32,
        "capabilityArgs": {},
        "plugins": [{"type": "bridge", "isAdded": True, "executions": executions}],
        "owned": {"reservations": [], "rules": [], "links": []},
    }


def lines(shown: Shown) -> Sequence[str]:
    """Return the lines about an endpoint itself."""
    (prose,) = (part for part in shown.parts if isinstance(part, Prose))
    return prose.lines


def test_few_lines_for_most_readers() -> None:
    """Rules and arguments are counted, and shown with --rules; IDs are short."""
    rules = ["iptables -t nat -A POSTROUTING -s 10.22.0.2/32", "iptables -A CNI-FORWARD -s 10.22.0.2/32 -j ACCEPT"]
    made = document("2026-01-02T03:04:04.000+00:00")
    result: JsonObject = {
        "ips": [{"address": "10.22.0.2/16", "gateway": "10.22.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.22.0.9"}],
    }
    owned: JsonObject = {"reservations": ["/var/lib/cni/networks/lan/10.22.0.2"], "rules": rules, "links": []}
    endpoint: JsonObject = {**made, "addresses": ["10.22.0.2/16"], "result": result, "owned": owned}
    short = lines(show_inspected([endpoint], ()))
    assert "gateway        10.22.0.1" in short
    assert "routes         0.0.0.0/0, 10.9.0.0/16 via 10.22.0.9" in short
    assert short[-1] == "further        2 rules, 1 reservation; --rules shows them"
    assert "77" * 32 not in "".join(short)
    whole = "\n".join(str(part) for part in show_inspected([endpoint], (), with_rules=True).parts)
    assert all(rule in whole for rule in rules)
    assert "77" * 32 in whole


def test_the_reason_of_the_attach_mode_is_shown() -> None:
    """Records of older versions have none."""
    made = document("2026-01-02T03:04:04.000+00:00")
    explained = show_inspected([{**made, "modeReason": "the container has further networks"}], ())
    assert "mode           move, because the container has further networks" in lines(explained)
    assert "mode           move" in lines(show_inspected([made], ()))


@pytest.mark.parametrize(
    ("deleted_at", "is_shown"), [("2026-01-02T03:04:04.000+00:00", False), ("2026-01-02T03:04:06.000+00:00", True)]
)
def test_a_del_before_the_last_add_is_not_shown(deleted_at: str, *, is_shown: bool) -> None:
    """It belongs to an earlier attempt; the JSON document has it."""
    shown = show_inspected([document(deleted_at)], ())
    (plugins,) = (part for part in shown.parts if isinstance(part, Table))
    assert [("del" in row, row["add"]) for row in plugins.rows] == [(is_shown, "12.0 ms")]
    assert shown.document == [document(deleted_at)]


def test_only_a_container_is_restarted() -> None:
    """The ID of an endpoint, shown where Docker has lost the container, is not one that `docker restart` knows."""
    rows: list[JsonObject] = [{"container": "web", "about": "rule"}, {"container": "823beace4a84", "about": "link"}]
    do, fix = mend(rows, {"web"}).splitlines()
    assert (
        do
        == "do: cni-bridge cleanup --run; it removes what Docker has lost. The container of 823beace4a84 is not known"
    )
    assert fix.startswith("fix: docker restart web; ")
