# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parts of libraries that the daemon does not use are not loaded when it starts."""

import ssl
import subprocess
import sys

import pytest

from cnm_bridge.system.lean_imports import lean_imports

LOAD = """
import ssl, sys
from cnm_bridge.system.lean_imports import lean_imports
reads = []
for method in ("load_default_certs", "set_default_verify_paths"):
    setattr(ssl.SSLContext, method, lambda *_, method=method: reads.append(method))
with lean_imports(certificates=False):
    import cnm_bridge.daemon
print([name for name in ("rich", "jsonschema", "pyroute2.netlink.rtnl.tcmsg") if name in sys.modules], reads)
"""


def test_importing_the_daemon_loads_no_unused_library() -> None:
    """Certificates are not loaded either while the daemon's modules are imported."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_nothing_is_loaded_for_other_commands_before_the_socket_is_open() -> None:
    """The command line is imported first, and Docker cannot connect before."""
    code = (
        "import sys, cnm_bridge.operator.cli.main, cnm_bridge.operator.cli.commands.serve; "
        "print([name for name in ('asyncio', 'http', 'email', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_only_the_subcommand_that_is_used_is_loaded() -> None:
    """The command line itself loads none of them."""
    code = (
        "import sys; from cnm_bridge.operator.cli.main import main; "
        "loaded = lambda: [name for name in sys.modules if '.cli.commands.' in name]; "
        "print(loaded()); main.commands['ls']; print(loaded())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['cnm_bridge.operator.cli.commands.ls']\n"


def test_certificates_are_loaded_for_an_engine_over_https() -> None:
    """The certificate of an engine at `https://` is verified."""
    wanted = LOAD.replace("certificates=False", "certificates=True")
    done = subprocess.run([sys.executable, "-c", wanted], capture_output=True, text=True, check=True)
    assert "load_default_certs" in done.stdout


@pytest.mark.parametrize("fails", [False, True])
def test_lean_imports_restores_everything(fails: bool) -> None:
    """Later SSL contexts load the machine's certificates, and rich can be imported, also after a failed import."""
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


def test_without_certificates_no_peer_is_trusted() -> None:
    """An SSL context made meanwhile rejects every certificate."""
    with lean_imports(certificates=False):
        context = ssl.create_default_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
