# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What cannot be checked is refused with a reason."""

import subprocess
import sys
from typing import Final

CHECK_WITHOUT_DESCRIPTORS: Final = """
import os, resource
from cni_bridge_spec import SchemaError, load_validator
validate = load_validator("cnm/NetworkReference")
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
try:
    validate({})
except SchemaError as exc:
    print(exc)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
try:
    validate({})
except SchemaError as exc:
    print(exc)
"""


def test_a_document_that_cannot_be_checked() -> None:
    """Without a free descriptor the library that says what is wrong cannot be imported; later it can."""
    done = subprocess.run([sys.executable, "-c", CHECK_WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("it cannot be checked: ")
    assert "Too many open files" in first
    assert second == "'NetworkID' is a required property"
