# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A running container keeps its network, whatever its record and the engine say."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cnm_bridge.core.settings import AttachOption
from tests.lab import Lab
from tests.lab.leftovers import leftovers
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, reaches, wait_logged

OFTEN = ("--reconcile-interval", "1")
BACKUP = "/run/backup.json"


def change_records(lab: Lab, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the stored endpoints, by export and import; the daemon must be stopped."""
    cli = (sys.executable, "-m", "cnm_bridge", "state")
    lab.run(*cli, "export", BACKUP)
    document = json.loads(lab.read(BACKUP))
    document["endpoints"] = [change(endpoint) for endpoint in document["endpoints"]]
    lab.write(BACKUP, document)
    lab.run(*cli, "import", "--replace", BACKUP)
    lab.remove(BACKUP)


def being_created(endpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the record from before all plugins had run."""
    return {**endpoint, "phase": "pending", "snapshot": None, "sandboxKey": None}


def before_its_join(endpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the record from before Join; in mode *hybrid* only the IPAM plugin had run."""
    older = {**endpoint, "phase": "ready", "sandboxKey": None}
    attachment = endpoint["attachment"]
    reserved = attachment.get("reservation")
    if reserved is None:
        return older
    plugins = len(attachment["configuration"]["plugins"])
    attachment = {**attachment, "netns": f"/run/cni-bridge/netns/{attachment['id']}"}
    pending = {"addedPlugins": 1, "deleted": [*range(1, plugins + 1)], "result": reserved, "firstProcess": None}
    return {**older, **pending, "attachment": attachment}


@pytest.mark.parametrize("older", [being_created, before_its_join])
@pytest.mark.representatives("being_created")
def test_an_outdated_record(
    private_scene: Scene, older: Callable[[dict[str, Any]], dict[str, Any]], attach: AttachOption
) -> None:
    """A running container whose latest record was lost keeps its network; `docker rm` removes it completely."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    made = lab.state()
    lab.stop_daemon()
    change_records(lab, older)
    lab.start_daemon(*OFTEN)
    if older is being_created:
        wait_logged(lab, "endpoint.outdated")
    elif attach is AttachOption.MOVE:  # in mode hybrid, an endpoint that has only a reservation is nothing unusual
        wait_logged(lab, "endpoint.in_use")
    other = private_scene.run(network)  # would receive the same address if the first were torn down
    wait_reconciled(lab)
    assert leftovers(lab.state(), made) == ""  # nothing of the first was removed
    assert reaches(container, subnet.gateway)
    assert reaches(other, subnet.gateway)
    lab.docker("rm", "-f", container.name, other.name)
    assert lab.wait_clean(before, timeout_s=20) == ""
