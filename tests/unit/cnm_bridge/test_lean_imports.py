# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon does not use of its libraries is not read when it starts."""

import ssl
import subprocess
import sys

import pytest

from cnm_bridge.lean_imports import lean_imports

LOAD = """
import ssl, sys
from cnm_bridge.lean_imports import lean_imports
reads = []
for method in ("load_default_certs", "set_default_verify_paths"):
    setattr(ssl.SSLContext, method, lambda *_, method=method: reads.append(method))
with lean_imports(certificates=False):
    import cnm_bridge.daemon
print([name for name in ("rich", "jsonschema") if name in sys.modules], reads)
"""


def test_the_daemon_is_imported_without_what_its_first_answer_does_not_need() -> None:
    """Neither certificates nor rich nor jsonschema are read while the daemon's modules are imported."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_certificates_are_read_where_the_engine_may_show_one() -> None:
    """An engine at `https://` is checked as ever."""
    wanted = LOAD.replace("certificates=False", "certificates=True")
    done = subprocess.run([sys.executable, "-c", wanted], capture_output=True, text=True, check=True)
    assert "load_default_certs" in done.stdout


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before_afterwards(fails: bool) -> None:
    """Contexts made later trust whom the machine trusts, and rich can be imported, also after a failed import."""
    before = {name: getattr(ssl.SSLContext, name) for name in ("load_default_certs", "set_default_verify_paths")}
    own = set(vars(ssl.SSLContext))
    had_rich = "rich" in sys.modules
    try:
        with lean_imports(certificates=False):
            assert ssl.SSLContext.load_default_certs is not before["load_default_certs"]
            if fails:
                raise ImportError("no such library")
    except ImportError:
        assert fails
    assert {name: getattr(ssl.SSLContext, name) for name in before} == before
    assert set(vars(ssl.SSLContext)) == own
    assert ("rich" in sys.modules) == had_rich


def test_without_certificates_nobody_is_trusted() -> None:
    """A context made meanwhile refuses whatever certificate it is shown."""
    with lean_imports(certificates=False):
        context = ssl.create_default_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
