# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker finds the daemon by a plugin spec file, as docs/configuration.md shows it."""

import json
from collections.abc import Iterator

import pytest

from cni_bridge_spec import JsonObject
from tests.certificates import certificates_script
from tests.lab import Engine, Lab, Plugins

SOCKET = "/run/elsewhere/driver.sock"
ADDRESS = "127.0.0.1:7654"
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


@pytest.mark.parametrize("address", [f"unix://{SOCKET}", f"tcp://{ADDRESS}"], ids=["unix", "tcp"])
def test_docker_finds_the_driver_by_a_spec_file(spec_lab: Lab, address: str) -> None:
    """A container gets its address through the address in NAME.spec."""
    further = ("--listen", address) if address.startswith("tcp:") else ()
    spec_lab.start_daemon("--socket", SOCKET, *further, socket=SOCKET)
    spec_lab.write("/etc/docker/plugins/spec-driver.spec", f"{address}\n")
    assert run_container(spec_lab).startswith("10.91.0.")


def test_docker_finds_the_driver_by_a_json_file_with_tls(spec_lab: Lab) -> None:
    """A container gets its address through TLS; a client without a certificate of the authority is not answered."""
    spec_lab.run("sh", "-euc", "mkdir -p /run/tls && cd /run/tls\n" + certificates_script("daemon", "docker"))
    files = ("--tls-cert", "/run/tls/daemon.pem", "--tls-key", "/run/tls/daemon-key.pem", "--tls-ca", "/run/tls/ca.pem")
    spec_lab.start_daemon("--socket", SOCKET, "--listen", f"https://{ADDRESS}", *files, socket=SOCKET)
    tls = {"CAFile": "ca.pem", "CertFile": "docker.pem", "KeyFile": "docker-key.pem"}
    spec: JsonObject = {
        "Name": "spec-driver",
        "Addr": f"https://{ADDRESS}",
        "TLSConfig": {"InsecureSkipVerify": False, **{key: f"/run/tls/{name}" for key, name in tls.items()}},
    }
    spec_lab.write("/etc/docker/plugins/spec-driver.json", spec)
    for client in ((), ("-cert", "/run/tls/intruder.pem", "-key", "/run/tls/intruder-key.pem")):
        assert "Implements" not in activate(spec_lab, *client)
    assert "Implements" in activate(spec_lab, "-cert", "/run/tls/docker.pem", "-key", "/run/tls/docker-key.pem")
    assert run_container(spec_lab).startswith("10.91.0.")


def activate(lab: Lab, *certificate: str) -> str:
    """Call the daemon with TLS and return what it answers."""
    request = "POST /Plugin.Activate HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n"
    client = ("openssl", "s_client", "-quiet", "-connect", ADDRESS, "-CAfile", "/run/tls/ca.pem")
    script = f"printf '{request}' | timeout 20 \"$@\""
    return lab.run("sh", "-c", script, "sh", *client, *certificate, check=False).stdout
