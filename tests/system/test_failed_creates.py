# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A create fails, and the DEL that undoes it fails too: the DEL stays pending and is repeated, whatever the reason."""

import re
import resource
from collections.abc import Iterator
from typing import Final

import pytest

from cni_bridge_spec import get_objects
from tests.lab import Lab, wait_until
from tests.system.calls import ask_status
from tests.system.scene import Scene, bridge, rules_of, wait_logged

BROKEN: Final = "/run/broken"
LIMIT_S: Final = 30.0
FILE: Final = "/opt/cni/bin/late-firewall"
PLUGIN: Final = f"""
IFS=:
for directory in $CNI_PATH; do
    [ -x "$directory/firewall" ] && firewall=$directory/firewall
done
if [ "$CNI_COMMAND" = DEL ] && [ -e {BROKEN} ]; then echo "xtables lock is held" >&2; exit 1; fi
"$firewall" || exit $?
[ "$CNI_COMMAND" = DEL ] || [ ! -e /run/sabotage ] && exit 0
. /run/sabotage
echo '{{"cniVersion": "1.0.0", "code": 999, "msg": "late-firewall has no luck"}}'
exit 1
"""
"""A wrapper of `firewall`. While `/run/sabotage` exists, its ADD makes the rules, runs that file, and fails."""

WAYS: Final = {
    "the xtables lock is held": f"touch {BROKEN}",
    "the plugin's file is missing": f"mv {FILE} {FILE}.away",
    "no descriptor is free": "prlimit --pid $PPID --nofile=8:",
}


def wait_repeated(lab: Lab) -> None:
    """Wait until each failed teardown has been repeated successfully."""
    wait_until(lambda: not get_objects(ask_status(lab), "pendingTeardowns"), "the teardown", LIMIT_S)


@pytest.fixture
def sabotaged(private_scene: Scene) -> Iterator[Scene]:
    """A scene with the plugin; after the test it works again."""
    lab = private_scene.lab
    private_scene.plugin("late-firewall", PLUGIN)
    yield private_scene
    _repair(private_scene)
    wait_repeated(lab)


def _repair(scene: Scene) -> None:
    """Make ADD and DEL succeed again."""
    lab = scene.lab
    assert lab.daemon is not None
    lab.run("rm", "-f", BROKEN, "/run/sabotage")
    lab.run("sh", "-c", f"[ ! -e {FILE}.away ] || mv {FILE}.away {FILE}")
    _, hard = resource.prlimit(lab.daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(lab.daemon.pid, resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.representatives("the xtables lock is held")
def test_a_failed_create_whose_delete_fails(sabotaged: Scene, way: str) -> None:
    """Docker shows the error of ADD; DEL is repeated until no rule and no reservation is left."""
    lab, subnet = sabotaged.lab, sabotaged.subnet()
    # In mode hybrid the ADD belongs to Join, and DeleteEndpoint comes next: without a descriptor it cannot be accepted.
    mode = ("-o", "cni.attach=move") if way == "no descriptor is free" else ()
    network = sabotaged.network(sabotaged.configure([*bridge(subnet)[:1], {"type": "late-firewall"}]), *mode)
    before = lab.state()
    lab.write("/run/sabotage", ":")
    sabotaged.run_refusal(network)  # so that the daemon has loaded its schemas, which need descriptors
    lab.write("/run/sabotage", WAYS[way])
    assert "late-firewall has no luck" in sabotaged.run_refusal(network)
    wait_logged(lab, "endpoint.teardown_pending")
    assert rules_of(lab, f"10.80.{subnet.number}.3")
    _repair(sabotaged)
    wait_until(lambda: not rules_of(lab, f"10.80.{subnet.number}.3"), "the end of the rules", LIMIT_S)
    wait_repeated(lab)
    assert lab.wait_clean(before) == ""


def test_ids_in_the_error_of_a_plugin(scene: Scene) -> None:
    """The ID that plugins receive is short in what Docker shows; it is whole in the log."""
    message = """printf '{"cniVersion": "1.0.0", "code": 999, "msg": "%s is unlucky"}' "$CNI_CONTAINERID"; exit 1"""
    scene.plugin("unlucky", f'[ "$CNI_COMMAND" = ADD ] || exit 0\n{message}')
    error = scene.run_refusal(scene.network(scene.configure([*bridge(scene.subnet())[:1], {"type": "unlucky"}])))
    (found,) = re.findall(r"\b([0-9a-f]{12}) is unlucky", error)
    assert f"endpoint {found}" in error
    assert not re.search("[0-9a-f]{64}", error)
    logged = wait_logged(scene.lab, f'"endpoint_id": "{found}')
    assert re.search(rf'"{found}[0-9a-f]{{52}}"', logged)
