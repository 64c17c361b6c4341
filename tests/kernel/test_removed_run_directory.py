# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`rm -rf /run/cni-bridge` while the daemon runs: operators are answered again, and it stays the only daemon there."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cni_invoker.execution.running_plugins import RunningPlugins
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.sockets import SocketFile
from tests.kernel.daemon_process import RunningDaemon, running_daemon
from tests.lab.waiting import wait_until


def second_daemon(daemon: RunningDaemon, directory: Path, **same: Path) -> str:
    """Start a second daemon, which must end at once; return its error.

    Args:
        daemon: The first one.
        directory: The directory of what the second one does not share with it.
        same: Options with the paths that they share.
    """
    paths = {"socket": directory / "s", "state_dir": directory / "state", "run_dir": directory / "run", **same}
    options = [word for name, path in paths.items() for word in (f"--{name.replace('_', '-')}", str(path))]
    command = (sys.executable, "-m", "cnm_bridge", "serve", *options, "--docker-host", f"unix://{directory}/none")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert daemon.is_answering()
    return done.stderr


def remove_all(daemon: RunningDaemon) -> None:
    """Remove the run directory."""
    shutil.rmtree(daemon.run_dir)


def remove_the_socket(daemon: RunningDaemon) -> None:
    """Remove the admin socket."""
    daemon.admin.unlink()


def move_all(daemon: RunningDaemon) -> None:
    """Put another directory in the place of the run directory."""
    daemon.run_dir.rename(daemon.directory / "former")
    daemon.run_dir.mkdir(mode=0o755)


@pytest.mark.parametrize("remove", [remove_all, remove_the_socket, move_all])
def test_what_is_removed_comes_back(tmp_path: Path, remove: Callable[[RunningDaemon], None]) -> None:
    """Any number of times: the socket with its mode, the directory with its mode and the lock."""
    with running_daemon(tmp_path / "daemon") as daemon:
        for _ in range(2):
            remove(daemon)
            wait_until(daemon.is_answering_operators, "the admin socket")
            assert daemon.admin.stat().st_mode & 0o777 == 0o600
            assert daemon.run_dir.stat().st_mode & 0o777 == 0o700
            shutil.rmtree(tmp_path / "daemon" / "former", ignore_errors=True)
        text = second_daemon(daemon, tmp_path / "second", run_dir=daemon.run_dir, admin_socket=tmp_path / "admin")
        assert f"run directory {daemon.run_dir} is used by another cni-bridge" in text
        text = second_daemon(daemon, tmp_path / "third", state_dir=daemon.directory / "state")
        assert "is in use by process" in text
    assert "Traceback" not in daemon.log
    assert not daemon.admin.exists()


def test_what_cannot_be_restored_is_an_error_in_the_log(tmp_path: Path) -> None:
    """It is tried again, so the daemon recovers when the obstacle is gone."""
    with running_daemon(tmp_path / "daemon") as daemon:
        remove_all(daemon)
        daemon.run_dir.write_text("in the way")
        wait_until(lambda: "daemon.not_restored" in daemon.log, "the line")
        assert daemon.is_answering()
        daemon.run_dir.unlink()
        wait_until(daemon.is_answering_operators, "the admin socket")


def test_a_socket_of_systemd_comes_back(tmp_path: Path) -> None:
    """Systemd does not make its socket's file again, and it may have been removed before the daemon's start."""
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(path))
        given.listen()
        kept = SocketFile(given.dup(), path, is_own=False, option="--admin-socket", directory_mode=0o700)
        kept.remove()
        assert path.exists()
        path.unlink()
        lost = SocketFile(given.dup(), path, is_own=False, option="--admin-socket", directory_mode=0o700)
        assert lost.is_lost
        lost.sock.close()
        with lost.renew(), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            lost.remove()
    assert not path.exists()


async def test_who_needs_the_directory_makes_it(tmp_path: Path, kernel: Kernel) -> None:
    """Staging namespaces, mount points of pins, and the files of running plugins do not wait for the next look."""
    run_dir = tmp_path / "run"
    plugins = RunningPlugins(run_dir / "plugins")
    for _ in range(2):
        await kernel.create_staging(run_dir / "netns" / "one")
        kernel.pin(run_dir / "pins" / "one", "eth0", "cni-test").prepare()
        with plugins.keep("one"):
            assert len([*(run_dir / "plugins").iterdir()]) == 1
        with pytest.raises(OSError, match="busy"):
            shutil.rmtree(run_dir / "netns")
        await kernel.remove_staging(run_dir / "netns" / "one")
        shutil.rmtree(run_dir)
