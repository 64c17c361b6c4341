# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Output of plugins and configurations are parsed without opening a file."""

import subprocess
import sys

import pytest

UNDERSTAND = """
import resource
import cni_invoker.execution.executor
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import parse_result
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    open("/dev/null")
except OSError:
    print({expression})
"""
EXPRESSIONS = [
    ('cni_invoker.execution.answer.find_error(b\'{"code": 11, "msg": "later"}\')["code"]', "11"),
    ('parse_result(b\'{"cniVersion": "1.0.0"}\', "1.0.0").cni_version', "1.0.0"),
    ('NetworkConfigurationList.from_document({"name": "lan", "plugins": [{"type": "bridge"}]}).name', "lan"),
    ('NetworkConfigurationList.from_plugin_document({"name": "lan", "type": "bridge"}).name', "lan"),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_schemas_are_loaded_at_import(expression: str, expected: str) -> None:
    """No schema is loaded at its first use: a plugin may fail because no file descriptor is left."""
    code = UNDERSTAND.replace("{expression}", expression)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")
