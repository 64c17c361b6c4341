# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A bundle for a bug report has no secrets, and is complete or does not exist."""

import io
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cnm_bridge.operator.cli.redaction import REDACTED, describe_redacted, redact, redact_text

SECRET = "hunter2-5up3r"


@pytest.mark.parametrize(
    "document",
    [
        {"password": SECRET},
        {"plugins": [{"type": "x", "apiToken": SECRET}]},
        {"auth": {"user": "u", "key": SECRET}},
        {"args": [{"key": "PASSWORD", "value": SECRET}]},
        {"options": {"cni.args.DB_PASSWORD": SECRET}},
        {"private_key": [SECRET]},
        {"etcd": f"https://user:{SECRET}@etcd:2379"},
        {"psk": SECRET, "nested": {"client-secret": SECRET}},
        {"env": f"TOKEN={SECRET} OTHER=1"},
    ],
)
def test_secrets_in_documents_are_removed(document: JsonValue) -> None:
    """Whatever has a name that says so, at any depth, and in texts."""
    assert SECRET not in repr(redact(document))
    assert REDACTED in repr(redact(document))


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{SECRET}"',
        f"api_key: {SECRET}",
        f'{{"event": "x", "stdin": "{{\\"password\\": \\"{SECRET}\\"}}"}}',
        f"Authorization: Bearer {SECRET}",
        f"https://user:{SECRET}@registry/",
        f"https://{SECRET}@registry:5000/image",
        f"- name: DB_PASSWORD\n  value: {SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"--token={SECRET}",
        f"MYSECRET={SECRET}",
    ],
)
def test_secrets_in_texts_are_removed(text: str) -> None:
    """In logs, configuration files and output of commands."""
    assert SECRET not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        '-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \\"lan\\" id: \\"77ad\\"" -j CNI-1',
        "inet6 fe80::1/64 scope link",
        "https://registry/image@latest",
        "net.bridge.bridge-nf-pass-vlan-input-dev = 0",
        '{"event":"rpc.answered","rpc":"NetworkDriver.Join","duration_ms":1.2}',
    ],
)
def test_everything_else_is_kept(text: str) -> None:
    """A report needs its facts."""
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "name",
    [
        *(
            "pass",
            "PASS",
            "db_pass",
            "db-pass",
            "smtp.pass",
            "pass_db",
            "db-pass-old",
            "conf-pass",
            "nf-pass",
            "nf_pass",
        ),
        *(
            "passwd",
            "password",
            "passphrase",
            "pass-vlan",
            "bridge-pass",
            "DB_PASS_1",
            "dbpassword",
            "bridge-nf-password2",
        ),
    ],
)
def test_names_with_pass_are_secret(name: str) -> None:
    """In documents and texts; of the kernel's parameters only the bridge's flag is known to be none."""
    assert SECRET not in repr(redact({name: SECRET}))
    assert SECRET not in redact_text(f"{name} = {SECRET}")


def test_the_number_of_redacted_values_is_told() -> None:
    """With the files that had them."""
    text = describe_redacted({"a.txt": REDACTED.encode() * 2, "b.txt": b"x", "c.txt": REDACTED.encode()})
    assert text.startswith("3 values redacted: a.txt (2), c.txt (1). ")
    assert describe_redacted({}).startswith("0 values redacted. ")


def test_other_names_are_kept() -> None:
    """Even those that contain a part of a secret name."""
    document: JsonValue = {"keys": [1], "author": "a", "passes": 3, "ipam": {"type": "host-local"}, "sandboxKey": "/x"}
    assert redact(document) == document


def run(*arguments: str, where: Path, limit: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `cni-bridge sysdump`, with a limit of the size of files in bytes."""

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "cnm_bridge", "sysdump", *arguments],
        env={k: v for k, v in os.environ.items() if not k.startswith("CNI_BRIDGE_")}
        | {"CNI_BRIDGE_ADMIN_SOCKET": str(where / "none.sock"), "CNI_BRIDGE_CNI_CONF_DIR": str(where / "net.d")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=restrict,
    )


@pytest.mark.slow
def test_a_bundle_without_a_daemon(tmp_path: Path) -> None:
    """It has the configurations without their secrets, and says what is missing."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "10-lan.conflist").write_text(f'{{"name": "lan", "plugins": [], "password": "{SECRET}"}}')
    (tmp_path / "net.d" / "20-bad.conf").write_text(f"not JSON, token={SECRET}")
    done = run(str(tmp_path / "dump.tar.gz"), where=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "dump.tar.gz"))
    assert (tmp_path / "dump.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "dump.tar.gz").read_bytes())) as archive:
        files = {one.name: (archive.extractfile(one) or io.BytesIO()).read().decode() for one in archive.getmembers()}
    assert not [name for name, content in files.items() if SECRET in content]
    assert f"files{tmp_path}/net.d/10-lan.conflist (1)" in done.stderr
    assert "not recognised: look at the file before you send it" in done.stderr
    assert files[f"dump/files{tmp_path}/net.d/20-bad.conf"] == "29 bytes, left out: neither JSON nor TOML\n"
    assert '"lan"' in files[f"dump/files{tmp_path}/net.d/10-lan.conflist"]
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
