# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is invalid, or cannot be checked, is refused with a reason."""

import subprocess
import sys
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, SchemaError, load_validator

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


CHECK_QUICKLY: Final = """
import sys
from cni_bridge_spec import load_validator
validate = load_validator("cnm/NetworkReference")
print(validate.accepts({"NetworkID": "a" * 64}), validate.accepts({}), "jsonschema" in sys.modules)
"""


def test_the_quick_check_loads_no_library() -> None:
    """A caller learns from it whether to validate in a thread, which loads a library."""
    done = subprocess.run([sys.executable, "-c", CHECK_QUICKLY], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


def test_an_invalid_value_is_explained() -> None:
    """The error has the path of the value, with its index in an array."""
    ports = [{"Proto": 6, "Port": 80}, {"Proto": 6, "Port": 70000}]
    document: JsonObject = {
        "NetworkID": "6f" * 32,
        "EndpointID": "77" * 32,
        "Options": {"com.docker.network.portmap": ports},
    }
    with pytest.raises(SchemaError, match=r"portmap\[1\].Port: 70000 is greater than the maximum of 65535"):
        load_validator("cnm/ProgramExternalConnectivity")(document)
