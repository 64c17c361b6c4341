# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Several processes with a runtime on one host: the chains and rules that plugins share are made once."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cni_invoker import DEFAULT_LOCK_DIR
from tests.kernel.namespace import Namespace

HOST = Namespace(Path("/proc/self/ns/net"))
PLUGINS = Path("/usr/lib/cni")
LIMIT_S = 60.0
RUNTIMES = 8

RUNTIME = """
import asyncio, json, pathlib, sys
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime

async def main():
    directory, locks, document, name, port = sys.argv[1:]
    runtime = Runtime([pathlib.Path(directory)], Limits(), lock_dir=pathlib.Path(locks))
    network = NetworkConfigurationList.from_document(json.loads(document))
    ports = {"portMappings": [{"hostPort": int(port), "containerPort": 80, "protocol": "tcp"}]}
    attachment = Attachment(container_id=name, ifname="eth0", netns=f"/run/netns/{name}", capability_args=ports)
    print("ready", flush=True)
    sys.stdin.readline()
    result = await runtime.add(network, attachment)
    print("added", flush=True)
    sys.stdin.readline()
    await runtime.delete(network, attachment, result)

asyncio.run(main())
"""
"""Another program: it runs ADD after the first line of its input, and DEL after the second."""


def rules() -> Counter[str]:
    """Count the rules of the tables that plugins write to, by their text."""
    found = (line for table in ("nat", "filter") for line in HOST.run(f"iptables -t {table} -S").decode().splitlines())
    return Counter(line for line in found if line.startswith("-A"))


@pytest.fixture(autouse=True)
def clean(private_namespaces: int) -> Iterator[None]:
    """Remove, after the test, what plugins leave behind by design."""
    assert private_namespaces
    if not (PLUGINS / "portmap").exists():
        pytest.skip(f"no CNI plugins in {PLUGINS}")
    yield
    HOST.ip("link del cni-test0")
    for table in ("nat", "filter"):
        HOST.run(f"iptables -t {table} -F")
        HOST.run(f"iptables -t {table} -X")


def test_processes_that_add_at_once(tmp_path: Path) -> None:
    """Although each ADD is the first in its process, no jump or rule is made twice, and DEL removes all."""
    ipam = {"type": "host-local", "dataDir": str(tmp_path), "subnet": "10.99.0.0/24"}
    plugins = [
        {"type": "bridge", "bridge": "cni-test0", "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "firewall", "backend": "iptables"},
    ]
    document = json.dumps({"cniVersion": "1.0.0", "name": "blue", "plugins": plugins})
    names = [f"runtime{number}" for number in range(RUNTIMES)]
    with ExitStack() as everything:
        for name in names:
            HOST.ip(f"netns add {name}")
            everything.callback(HOST.ip, f"netns del {name}")
        processes = [
            everything.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RUNTIME, str(PLUGINS), str(DEFAULT_LOCK_DIR), document, name, str(8000 + n)],
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n, name in enumerate(names)
        ]
        for process in processes:
            everything.callback(process.kill)
        for line in ("ready", "added"):
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == f"{line}\n"
            existing = rules()
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
        assert [process.wait(timeout=LIMIT_S) for process in processes] == [0] * RUNTIMES
    assert any("CNI-HOSTPORT-DNAT" in rule for rule in existing)
    assert any("CNI-FORWARD" in rule for rule in existing)
    assert [rule for rule, times in existing.items() if times > 1] == []
    assert not [rule for rule in rules() if "10.99.0." in rule or "--dport" in rule]
