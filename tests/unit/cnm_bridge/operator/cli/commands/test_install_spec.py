# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge install-spec` writes the file that Docker reads, or changes nothing and says why."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cnm_bridge.operator.cli.main import main


def install(directory: Path, *words: str) -> Result:
    """Run the command for a directory."""
    return CliRunner().invoke(main, ["install-spec", "--directory", str(directory), *words])


@pytest.fixture(name="tls")
def make_tls(tmp_path: Path) -> list[str]:
    """The three TLS options, with files that exist."""
    words = []
    for kind in ("ca", "cert", "key"):
        file = tmp_path / f"{kind}.pem"
        file.write_text("x")
        words += [f"--tls-{kind}", str(file)]
    return words


@pytest.mark.parametrize("address", ["unix:///run/x.sock", "tcp://127.0.0.1:7654"])
def test_a_plain_address_becomes_a_spec_file(tmp_path: Path, address: str) -> None:
    """It has the address alone, as moby's discovery reads it; a second time changes nothing."""
    for _ in range(2):
        assert install(tmp_path / "plugins", address).exit_code == 0
    assert (tmp_path / "plugins/cni-bridge.spec").read_text() == f"{address}\n"


def test_tls_becomes_a_json_file(tmp_path: Path, tls: list[str]) -> None:
    """It names the three files, and has the certificate of the daemon checked."""
    assert install(tmp_path, "--name", "blue", *tls, "https://10.0.0.1:7654").exit_code == 0
    assert json.loads((tmp_path / "blue.json").read_text()) == {
        "Name": "blue",
        "Addr": "https://10.0.0.1:7654",
        "TLSConfig": {
            "InsecureSkipVerify": False,
            "CAFile": str(tmp_path / "ca.pem"),
            "CertFile": str(tmp_path / "cert.pem"),
            "KeyFile": str(tmp_path / "key.pem"),
        },
    }


def test_a_file_that_points_elsewhere_is_kept(tmp_path: Path, tls: list[str]) -> None:
    """It is named, and replaced only on request, whatever its suffix."""
    assert install(tmp_path, "unix:///run/x.sock").exit_code == 0
    for words in (["tcp://127.0.0.1:1"], [*tls, "https://127.0.0.1:1"]):
        refused = install(tmp_path, *words)
        assert refused.exit_code == 1
        where = "points elsewhere, to unix:///run/x.sock; nothing was changed"
        assert f"{tmp_path}/cni-bridge.spec {where}" in refused.output
    assert (tmp_path / "cni-bridge.spec").read_text() == "unix:///run/x.sock\n"
    assert install(tmp_path, "--replace", *tls, "https://127.0.0.1:1").exit_code == 0
    assert [path.name for path in tmp_path.glob("cni-bridge.*")] == ["cni-bridge.json"]
    assert "to https://127.0.0.1:1; nothing was changed" in install(tmp_path, "unix:///run/x.sock").output


@pytest.mark.parametrize(
    ("content", "shown"),
    [("", "to nothing;"), ("{}", "to {};"), ('{"Addr": ', 'to {"Addr":;'), ("\udcff", "to \ufffd")],
)
def test_an_unusable_file_is_kept(tmp_path: Path, content: str, shown: str) -> None:
    """What it has instead of an address is shown."""
    file = tmp_path / "cni-bridge.json"
    file.write_text(content, "utf-8", "surrogateescape")
    assert shown in install(tmp_path, "unix:///run/x.sock").output
    assert file.read_bytes() == content.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["/run/x.sock"], "neither unix:///PATH"),
        (["unix://run/x.sock"], "neither unix:///PATH"),
        (["https://127.0.0.1:1"], "needs --tls-ca, --tls-cert and --tls-key"),
        (["--tls-ca", "/etc/passwd", "tcp://127.0.0.1:1"], "an address without TLS"),
        (["--name", "../x", "unix:///run/x.sock"], "cannot be the name of a driver"),
    ],
)
def test_what_docker_could_not_use_is_refused(tmp_path: Path, words: list[str], text: str) -> None:
    """The error says what is wrong, and no file is written."""
    refused = install(tmp_path / "plugins", *words)
    assert refused.exit_code == 1
    assert text in refused.output
    assert not (tmp_path / "plugins").exists()


def test_a_missing_certificate_is_named(tmp_path: Path, tls: list[str]) -> None:
    """Docker would only find out when a container starts."""
    (tmp_path / "key.pem").unlink()
    refused = install(tmp_path, *tls, "https://127.0.0.1:1")
    assert refused.exit_code == 1
    assert f"{tmp_path}/key.pem does not exist" in refused.output
