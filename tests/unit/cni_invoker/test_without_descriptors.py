# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins print, and what configurations say, is understood while not one more file can be opened."""

import subprocess
import sys

import pytest

UNDERSTAND = """
import resource
import cni_invoker.execution.execute
from cni_invoker import NetworkConfigurationList, parse_result
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    open("/dev/null")
except OSError:
    print({expression})
"""
EXPRESSIONS = [
    ('cni_invoker.execution.execute._find_error(b\'{"code": 11, "msg": "later"}\')["code"]', "11"),
    ('parse_result(b\'{"cniVersion": "1.0.0"}\', "1.0.0").cni_version', "1.0.0"),
    ('NetworkConfigurationList.from_document({"name": "lan", "plugins": [{"type": "bridge"}]}).name', "lan"),
    ('NetworkConfigurationList.from_plugin_document({"name": "lan", "type": "bridge"}).name', "lan"),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_the_schemas_are_there_from_the_start(expression: str, expected: str) -> None:
    """No schema is read at its first use: the first plugin that fails may do so because there are no descriptors."""
    code = UNDERSTAND.replace("{expression}", expression)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")
