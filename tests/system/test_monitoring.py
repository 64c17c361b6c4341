# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A real Prometheus scrapes the daemon, and its alert fires for a pending teardown."""

import re
from pathlib import Path

import pytest

from cni_invoker.documents.jsontypes import as_object, get_object, get_objects, get_str, parse_json
from tests.lab import Lab, wait_until
from tests.lab.debian import FetchError
from tests.lab.fetch import fetch_program
from tests.system.scene import PREV_RESULT, Scene, bridge

ADDRESS, SERVER = "127.0.0.1:9790", "127.0.0.1:9791"
RULES = Path(__file__).parents[2] / "docs/monitoring/alerts.yml"
CONFIGURATION = f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [/run/lab/alerts.yml]
scrape_configs:
  - job_name: cni-bridge
    static_configs: [{{targets: ["{ADDRESS}"]}}]
"""


@pytest.fixture(name="prometheus", scope="module")
def fetched_prometheus() -> Path:
    """Debian's Prometheus, from the cache or the mirror."""
    try:
        return fetch_program("prometheus")
    except FetchError as exc:
        pytest.skip(f"Prometheus cannot be had: {exc}")


def scrape(lab: Lab) -> str:
    """Return the metrics at the TCP address."""
    return lab.run("curl", "-sf", f"http://{ADDRESS}/metrics").stdout


def firing(lab: Lab) -> set[str]:
    """Return the names of the alerts that Prometheus fires."""
    done = lab.run("curl", "-sf", f"http://{SERVER}/api/v1/alerts", check=False)
    if done.returncode != 0:
        return set()
    answer = as_object(parse_json(done.stdout.encode()), "alerts")
    alerts = get_objects(get_object(answer, "data"), "alerts")
    return {get_str(get_object(one, "labels"), "alertname") for one in alerts if get_str(one, "state") == "firing"}


@pytest.mark.long
def test_an_alert_fires_for_a_pending_teardown(private_scene: Scene, prometheus: Path) -> None:
    """The rules are those of docs, with seconds instead of minutes; promtool finds no fault in rules and metrics."""
    lab = private_scene.lab
    lab.stop_daemon()
    lab.start_daemon("--metrics-listen", ADDRESS)
    checked = lab.run(str(prometheus.with_name("promtool")), "check", "rules", str(RULES))
    assert "9 rules found" in checked.stdout
    # The shorter limits: what is pending for ten minutes is pending for a second.
    rules = re.sub(r"age_seconds > 600", "age_seconds > 1", RULES.read_text("utf-8"))
    assert rules != RULES.read_text("utf-8")
    lab.write("/run/lab/alerts.yml", rules)
    lab.write("/run/lab/prometheus.yml", CONFIGURATION)
    options = ("--config.file=/run/lab/prometheus.yml", "--storage.tsdb.path=/run/lab/tsdb")
    lab.spawn(str(prometheus), *options, f"--web.listen-address={SERVER}", "--log.level=warn")

    plugin = f"""
[ "$CNI_COMMAND" = DEL ] && [ -e /run/lab/broken ] && {{ echo '{{"code": 99, "msg": "broken"}}'; exit 1; }}
[ "$CNI_COMMAND" = ADD ] && exec python3 -c '{PREV_RESULT.replace("'", '"')}'
exit 0"""
    private_scene.plugin("failing", plugin)
    list_name = private_scene.configure((*bridge(private_scene.subnet()), {"type": "failing"}), cni_version="0.4.0")
    container = private_scene.run(private_scene.network(list_name))
    metrics = scrape(lab)
    assert f'cni_bridge_endpoints{{network="{list_name}",phase="joined"}} 1.0' in metrics
    assert 'cni_bridge_plugin_executions_total{outcome="success",plugin="failing",verb="ADD"} 1.0' in metrics
    assert 'cni_bridge_calls_total{call="NetworkDriver.Join",outcome="answered"} 1.0' in metrics
    assert f'cni_bridge_ipam_reserved_addresses{{network="{list_name}"}} 1.0' in metrics
    linted = lab.run(str(prometheus.with_name("promtool")), "check", "metrics", input=metrics, check=False)
    assert linted.returncode == 0, linted.stderr + linted.stdout

    lab.write("/run/lab/broken", "")
    lab.docker("rm", "--force", container.name)
    wait_until(lambda: "CniBridgeTeardownPending" in firing(lab), "the alert", 60.0)
    assert "cni_bridge_pending_teardowns 1.0" in scrape(lab)
    lab.remove("/run/lab/broken")
    wait_until(lambda: "CniBridgeTeardownPending" not in firing(lab), "the end of the alert", 60.0)


def test_metrics_at_the_admin_socket(lab: Lab) -> None:
    """They are there without any setting, and not at the plugin socket."""
    command = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{content_type}", "http://x/metrics")
    admin = lab.run(*command, "--unix-socket", "/run/cni-bridge/admin.sock").stdout
    assert admin == "200 text/plain; version=0.0.4"
    assert lab.run(*command, "--unix-socket", "/run/docker/plugins/cni-bridge.sock").stdout.startswith("404")
