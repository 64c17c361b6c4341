# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A bundle for a bug report has no configurations, and is complete or does not exist."""

import io
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SECRET = "hunter2-5up3r"


def run(*arguments: str, where: Path, limit: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `cni-bridge sysdump`, with a limit of the size of files in bytes."""
    # With the limit, Python would leave parts of its compiled modules in the source, which no later start could read.
    compiling = {} if limit is None else {"PYTHONDONTWRITEBYTECODE": "1"}

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "cnm_bridge", "sysdump", *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("CNI_BRIDGE_")}
        | compiling
        | {"CNI_BRIDGE_ADMIN_SOCKET": str(where / "none.sock"), "CNI_BRIDGE_CNI_CONF_DIR": str(where / "net.d")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=restrict,
    )


@pytest.mark.slow
def test_a_bundle_without_a_daemon(tmp_path: Path) -> None:
    """It has no configurations, which may have secrets, and says what is missing."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "10-lan.conflist").write_text(f'{{"name": "lan", "plugins": [], "password": "{SECRET}"}}')
    done = run(str(tmp_path / "dump.tar.gz"), where=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "dump.tar.gz"))
    assert (tmp_path / "dump.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "dump.tar.gz").read_bytes())) as archive:
        files = {one.name: (archive.extractfile(one) or io.BytesIO()).read().decode() for one in archive.getmembers()}
    assert not [name for name, content in files.items() if SECRET in content]
    assert "no daemon answers" in files["dump/status.json.missing"]
    assert {"dump/version.txt", "dump/doctor.json", "dump/host/iptables.txt"} <= files.keys()


@pytest.mark.slow
def test_no_command_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line may have a password under any name, and is of no use for a report."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\necho "docker $*"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    assert run(str(tmp_path / "dump.tar.gz"), where=tmp_path).returncode == 0
    with tarfile.open(tmp_path / "dump.tar.gz") as archive:
        file = archive.extractfile("dump/docker/containers.txt")
        assert file is not None
        called = file.read().decode()
    assert called.startswith("docker ps --all --no-trunc --format {{.ID}}")
    assert "Command" not in called


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """The error says what is wrong; there is no file, not even a part of one."""
    done = run(str(tmp_path / "dump.tar.gz"), where=tmp_path, limit=100)
    assert done.returncode == 1
    assert f"cannot write {tmp_path}/dump.tar.gz: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """Nothing is collected for it."""
    (tmp_path / "dump.tar.gz").write_text("former")
    done = run(str(tmp_path / "dump.tar.gz"), where=tmp_path)
    assert (done.returncode, f"{tmp_path}/dump.tar.gz exists" in done.stderr) == (2, True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("dump.tar.gz", "former")]
