# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker finds the daemon by a plugin spec file, as docs/configuration.md shows it."""

import json
from collections.abc import Iterator

import pytest

from tests.lab import Engine, Lab, Plugins

SOCKET = "/run/elsewhere/driver.sock"
CONFIGURATION = {
    "cniVersion": "1.0.0",
    "name": "blue",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni-spec",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.91.0.0/24"}]]},
        }
    ],
}


@pytest.fixture(name="spec_lab")
def make_lab(engine: Engine, cni_plugins: Plugins | None) -> Iterator[Lab]:
    """A Docker host with a configuration; the daemon is not started, and will have no socket where Docker looks."""
    with Lab(engine=engine, plugins=cni_plugins) as lab:
        lab.import_image()
        lab.write("/etc/cni/net.d/10-blue.conflist", json.dumps(CONFIGURATION))
        before = lab.state()
        yield lab
        lab.docker("rm", "-f", "one")
        lab.docker("network", "rm", "blue")
        assert lab.wait_clean(before) == ""


def run_container(lab: Lab) -> str:
    """Make a network of the driver and a container on it; return its address."""
    lab.docker("network", "create", "-d", "spec-driver", "--ipam-driver", "null", "blue")
    lab.docker("run", "-d", "--name", "one", "--net", "blue", "busybox", "sleep", "600")
    return lab.docker("inspect", "--format", "{{.NetworkSettings.Networks.blue.IPAddress}}", "one")


def test_docker_finds_the_driver_by_a_spec_file(spec_lab: Lab) -> None:
    """A container gets its address through the socket in NAME.spec."""
    spec_lab.start_daemon("--socket", SOCKET, socket=SOCKET)
    spec_lab.write("/etc/docker/plugins/spec-driver.spec", f"unix://{SOCKET}\n")
    assert run_container(spec_lab).startswith("10.91.0.")
