# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugin loads, which is most of its time: it starts anew for each call."""

import json
import subprocess
import sys
from typing import Final

SLOW: Final = {"asyncio", "ctypes", "dataclasses", "email", "http", "inspect", "logging", "ssl"}
LOADED: Final = "import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
ADD: Final = """
from cni_plugin import Plugin
def add(call):
    return {"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.1.0.9/24", "interface": 0}]}
Plugin(add=add, delete=print, versions=("1.0.0",)).run("x")
"""


def loaded(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has after a statement."""
    command = (sys.executable, "-c", LOADED.format(statement=statement))
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def test_slow_modules_are_not_loaded() -> None:
    """A driver at a Unix socket needs neither a library for HTTP nor one for TLS; nothing needs data classes."""
    assert (loaded("import cnm_plugin.plugin") - loaded("pass")).isdisjoint(SLOW)


def test_a_result_is_checked_and_converted_without_its_records() -> None:
    """The answer to ADD is, which all plugins in Python give."""
    statement = "from cni_invoker.documents.result_documents import check_result, convert_result"
    assert (loaded(f"{statement}; import cni_plugin") - loaded("pass")).isdisjoint(SLOW)
    environment = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "/run/netns/c", "CNI_IFNAME": "eth0"}
    ended = subprocess.run(
        (sys.executable, "-X", "importtime", "-c", ADD),
        input=json.dumps({"cniVersion": "1.0.0", "name": "lan", "type": "x"}),
        env={**environment, "CNI_PATH": "/x"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ended.stdout)["cniVersion"] == "1.0.0"
    assert "cni_invoker.documents.result_documents" in ended.stderr
    assert "cni_invoker.documents.results" not in ended.stderr
