# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A user who is not root: each command says so, and ends with the exit status that its help has."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

AS_ANOTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
COMMAND = (sys.executable, "-m", "cnm_bridge")
LIMIT_S = 60.0


def run(*arguments: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the program as another user."""
    return subprocess.run(
        [*AS_ANOTHER, *COMMAND, *arguments],
        env={**os.environ, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture(scope="module", name="env")
def make_env() -> Iterator[Mapping[str, str]]:
    """Directories of a daemon, which only root can enter, as settings of the environment."""
    if os.geteuid():
        pytest.skip("only root can run a command as another user")
    if run("--version", env={}).returncode:
        pytest.skip("other users cannot enter the directory of the source")
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        where.chmod(0o755)
        for directory in ("run", "state", "sockets"):
            (where / directory).mkdir(mode=0o700)
        yield {
            "CNI_BRIDGE_RUN_DIR": f"{where}/run",
            "CNI_BRIDGE_STATE_DIR": f"{where}/state",
            "CNI_BRIDGE_SOCKET": f"{where}/sockets/s",
            "CNI_BRIDGE_CNI_CONF_DIR": f"{where}/sockets",
            "DOCKER_HOST": f"unix://{where}/sockets/docker",
        }


@pytest.mark.parametrize(
    ("command", "status"),
    [
        *(
            (name, 3)
            for name in ("status", "ls", "inspect --check", "inspect web", "cleanup", "cleanup --run", "events")
        ),
        *(("network create blue --subnet 10.22.0.0/16", 3), ("network rm blue", 3)),
        *(("state export", 1), ("state export /root/x", 1), ("serve", 1)),
        *(("doctor", 1), ("explain blue", 2)),
    ],
)
def test_run_as_root(env: Mapping[str, str], command: str, status: int) -> None:
    """The error, or what a command says before it does what every user can, has no traceback and says what to do."""
    done = run(*command.split(), env=env)
    assert (done.returncode, "run as root (sudo): " in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
