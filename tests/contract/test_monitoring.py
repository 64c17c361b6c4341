# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The files for monitoring use metrics that exist, and the document explains all of them."""

import json
import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.egress import metrics_example as egress_example
from tests.unit.cnm_bridge.server.admin.metrics_example import render_example

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = (DOCS / "monitoring.md").read_text("utf-8")
ALERTS = yaml.safe_load((DOCS / "monitoring/alerts.yml").read_text("utf-8"))
DASHBOARD = json.loads((DOCS / "monitoring/grafana-dashboard.json").read_text("utf-8"))
RENDERED = (render_example() + egress_example.render_example()).decode()
FAMILIES = {family.name: family for family in text_string_to_metric_families(RENDERED)}
SAMPLES = {sample.name for family in FAMILIES.values() for sample in family.samples}


def used(expressions: list[str]) -> set[str]:
    """Return the names of our metrics in expressions of PromQL."""
    return {name for text in expressions for name in re.findall(r"\b(?:cni_bridge|cni_egress|process)_\w+", text)}


def test_the_files_use_metrics_that_exist() -> None:
    """In alert rules, panels and variables."""
    rules = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    names = used([*rules, *panels, *variables])
    assert {"cni_bridge_pending_teardown_age_seconds", "cni_egress_repairs_total"} <= names
    assert names - SAMPLES == set()


def test_the_document_has_each_metric() -> None:
    """And no others."""
    rows = set(re.findall(r"^\| `(cni_(?:bridge|egress)_\w+)`", DOCUMENT, re.MULTILINE))
    families = {
        f"{name}_total" if family.type == "counter" else name
        for name, family in FAMILIES.items()
        if name.startswith("cni_")
    }
    assert rows == families


def test_the_dashboard_has_names_and_thresholds() -> None:
    """A state has a name, a number that may be bad has a limit, and nothing is shown before the first round."""
    stats = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] == "stat"}
    fields = {title: panel["fieldConfig"]["defaults"] for title, panel in stats.items()}
    assert all(len(field["thresholds"]["steps"]) > 1 for field in fields.values())
    (mapping,) = fields["Engine"]["mappings"]
    assert {value: shown["text"] for value, shown in mapping["options"].items()} == {"0": "down", "1": "up"}
    # The metric is 0 before the first round, which would be more than 50 years ago.
    (target,) = stats["Since the last round"]["targets"]
    assert target["expr"].endswith("} > 0)")
    assert fields["Since the last round"]["noValue"] == "no round yet"
