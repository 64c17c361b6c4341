# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A driver is found as dockerd finds it."""

import socket
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, render_json
from cni_plugin import CallError
from cnm_plugin.driver import DriverAddress, Tls, find_driver


def find(root: Path) -> DriverAddress:
    """Find the driver `other`."""
    return find_driver("other", root / "run", (root / "etc", root / "lib"))


def write(file: Path, content: str | JsonObject) -> None:
    """Write a spec file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else render_json(content))


@pytest.mark.parametrize("name", ["other.sock", "other/other.sock"])
def test_a_socket_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file that is not a socket does not count, as for dockerd."""
    write(tmp_path / "etc/other.spec", "tcp://localhost:1")
    write(tmp_path / "run" / name, "no socket")
    assert find(tmp_path).host == "localhost"
    (tmp_path / "run" / name).unlink()
    monkeypatch.chdir((tmp_path / "run" / name).parent)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("other.sock")
        assert find(tmp_path) == DriverAddress(path=str(tmp_path / "run" / name))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("etc/other.spec", "etc/other/other.spec"),
        ("etc/other/other.spec", "etc/other.json"),
        ("etc/other.json", "etc/other/other.json"),
        ("etc/other/other.json", "lib/other.spec"),
    ],
)
def test_the_order_of_spec_files(tmp_path: Path, better: str, worse: str) -> None:
    """The first of them wins."""
    for name, url in ((worse, "tcp://worse:1"), (better, "tcp://better:1")):
        write(tmp_path / name, url if name.endswith(".spec") else {"Addr": url})
    assert find(tmp_path).host == "better"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("unix:///a/b.sock\n", "unix:///a/b.sock"),
        ("tcp://127.0.0.1:99", "tcp://127.0.0.1:99"),
        ("http://h:99", "tcp://h:99"),
        ("https://h:99", "https://h:99"),
    ],
)
def test_addresses(tmp_path: Path, url: str, shown: str) -> None:
    """Only https means TLS."""
    write(tmp_path / "etc/other.spec", url)
    assert str(find(tmp_path)) == shown


def test_tls(tmp_path: Path) -> None:
    """Without the authority's certificate nothing is verified: that is dockerd's rule."""
    files = {"CAFile": "ca", "CertFile": "cert", "KeyFile": "key"}
    write(tmp_path / "etc/other.json", {"Addr": "https://h:1", "TLSConfig": files})
    assert find(tmp_path).tls == Tls(ca="ca", cert="cert", key="key", verify=True)
    write(tmp_path / "etc/other.json", {"Addr": "https://h:1", "TLSConfig": {**files, "InsecureSkipVerify": True}})
    assert find(tmp_path).tls == Tls(ca="ca", cert="cert", key="key", verify=False)
    write(tmp_path / "etc/other.json", {"Addr": "https://h:1"})
    assert find(tmp_path).tls == Tls()
    write(tmp_path / "etc/other.json", {"Addr": "tcp://h:1", "TLSConfig": files})
    assert find(tmp_path).tls is None


@pytest.mark.parametrize(
    "content", ["", "ftp://h:1", "tcp://h", "unix:relative", "unix://run/other.sock", "tcp://h:x", "\xff"]
)
def test_invalid_spec_files(tmp_path: Path, content: str) -> None:
    """The error names the file."""
    file = tmp_path / "etc/other.spec"
    file.parent.mkdir()
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(CallError, match=f"spec file {file} is invalid") as failed:
        find(tmp_path)
    assert failed.value.code == 7


@pytest.mark.parametrize("document", ["{", "[]", '{"TLSConfig": {}}', '{"Addr": 1}'])
def test_invalid_json_files(tmp_path: Path, document: str) -> None:
    """The error names the file."""
    write(tmp_path / "etc/other.json", document)
    with pytest.raises(CallError, match=f"spec file {tmp_path}/etc/other.json is invalid"):
        find(tmp_path)


def test_no_driver(tmp_path: Path) -> None:
    """The error names the directories."""
    with pytest.raises(CallError, match="there is no Docker network driver other") as failed:
        find(tmp_path)
    assert failed.value.code == 50
    assert failed.value.details == f"searched in {tmp_path}/run, {tmp_path}/etc, {tmp_path}/lib"


@pytest.mark.parametrize("name", ["", "..", "../other", "a/b", ".hidden"])
def test_invalid_names(name: str) -> None:
    """A name is never a path."""
    with pytest.raises(CallError, match="is not the name of a driver"):
        find_driver(name)
