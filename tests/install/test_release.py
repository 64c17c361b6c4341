# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The folder of a release: signed, complete, and a repository for apt; `make test-release` runs this (needs root)."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cnm_bridge import __version__
from tests.install.machine import Machine
from tests.install.packages import RELEASES, fetch_system
from tests.lab.debian import FetchError, run_program

pytestmark = pytest.mark.timeout(1800)  # a root directory is made

ROOT = Path(__file__).parents[2]
EARLIER = "0.0.9"
SERVED = "/srv/www"
URL = "http://127.0.0.1:8000"
SOURCES = "/etc/apt/sources.list.d/cni-bridge.sources"
FETCH = "import sys, urllib.request as r; r.urlretrieve(*sys.argv[1:])"
NOT_ON_LINUX = {"colorama", "win-inet-pton"}
"""Libraries of constraints.txt that are for another system."""


@pytest.fixture(name="keys", scope="module")
def make_keys() -> Iterator[Mapping[str, str]]:
    """The environment of a gpg with two temporary keys; its agent needs a short path."""
    with tempfile.TemporaryDirectory(prefix="gpg-") as home:
        environment = {**os.environ, "GNUPGHOME": home, "KEY": "release@example.org"}
        for user in ("release@example.org", "other@example.org"):
            generate = (
                "gpg",
                "--batch",
                "--quiet",
                "--passphrase",
                "",
                "--quick-generate-key",
                user,
                "ed25519",
                "sign",
            )
            run_program(*generate, "1d", environment=environment)
        yield environment
        run_program("gpgconf", "--kill", "gpg-agent", environment=environment)


@pytest.fixture(name="previous", scope="module")
def make_previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an earlier release, with the packages of this one under an earlier version."""
    folder = tmp_path_factory.mktemp("previous")
    for package in sorted((ROOT / "dist").glob("cni-bridge_*.deb")):
        unpacked = folder / "unpacked"
        run_program("dpkg-deb", "--raw-extract", str(package), str(unpacked))
        control = unpacked / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^(Version: )[^~]+", rf"\g<1>{EARLIER}", control.read_text("utf-8")), "utf-8")
        pool = folder / "apt/pool" / package.name.rpartition("~")[2].partition("_")[0]
        pool.mkdir(parents=True)
        run_program("dpkg-deb", "--build", str(unpacked), str(pool))
        shutil.rmtree(unpacked)
    return folder


@pytest.fixture(name="release", scope="module")
def build_release(keys: Mapping[str, str], previous: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, of what make has built before, as it would be served at `URL`."""
    directory = tmp_path_factory.mktemp("release")
    command = (str(ROOT / "packaging/build-release"), str(directory))
    environment = {**keys, "URL": URL, "PREVIOUS": str(previous)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / f"cni-bridge-{__version__}"


@pytest.fixture(name="copy")
def copy_release(release: Path, tmp_path: Path) -> Path:
    """A copy of the folder that a test may change."""
    return Path(shutil.copytree(release, tmp_path / "release"))


@pytest.fixture(name="machine", params=RELEASES)
def boot_machine(request: pytest.FixtureRequest, release: Path, tmp_path: Path) -> Iterator[Machine]:
    """A minimal system with Docker that has no other repository, and serves the folder to itself."""
    suite = str(request.param)
    if not (release / "apt" / f"{suite}.sources").exists():
        pytest.skip(f"the release has no package for {suite}, whose own packages cannot be had here")
    with Machine(tmp_path / suite, fetch_system(suite)) as machine:
        shutil.copytree(release, machine.path(SERVED))
        machine.run("rm", "-rf", "/etc/apt/sources.list", "/etc/apt/sources.list.d")
        machine.run("mkdir", "/etc/apt/sources.list.d")
        serve = ("python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", SERVED, "8000")
        machine.run("systemd-run", "--unit=www", *serve)
        fetch = ("python3", "-c", FETCH, f"{URL}/apt/{suite}.sources", SOURCES)
        machine.run("sh", "-c", 'for i in $(seq 100); do "$@" 2>/dev/null && exit; sleep 0.1; done; "$@"', "sh", *fetch)
        yield machine


def check_sums(directory: Path, environment: Mapping[str, str]) -> None:
    """Check the signature and the sums as RELEASING.md says."""
    run_program("gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=directory, environment=dict(environment))
    run_program("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=directory)


def test_everything_has_a_signed_checksum(copy: Path, keys: Mapping[str, str]) -> None:
    """A file that is not in the list, was changed, or has its sum changed with it, is found."""
    check_sums(copy, keys)
    listed = {line.split()[1] for line in (copy / "SHA256SUMS").read_text("ascii").splitlines()}
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert files - listed == {"SHA256SUMS", "SHA256SUMS.asc"}

    (copy / "CHANGELOG.md").write_text("nothing changed\n", "utf-8")
    with pytest.raises(FetchError, match=r"CHANGELOG\.md|computed checksum"):
        check_sums(copy, keys)
    sums = run_program("sha256sum", *sorted(listed), cwd=copy)
    (copy / "SHA256SUMS").write_text(sums, "ascii")
    with pytest.raises(FetchError, match="BAD signature"):
        check_sums(copy, keys)


def test_pip_finds_all_packages(release: Path) -> None:
    """There are a wheel and a source archive of each, and what they were tested with."""
    version, built = __version__, {path.name for path in (release / "python").iterdir()}
    ours = ("cni_bridge", "cni_egress", "cni_invoker", "cni_ipam_etcd", "cni_netavark", "cni_plugin", "cni_tool")
    names = (*ours, "cnm_plugin", "pytest_cni")
    wheels = {f"{name}-{version}-py3-none-any.whl" for name in names}
    assert built == wheels | {f"{name}-{version}.tar.gz" for name in names} | {"constraints.txt"}


def test_the_bill_of_materials(release: Path) -> None:
    """It has every library of constraints.txt, in that version, with a licence, and ours."""
    document = json.loads((release / "sbom.cdx.json").read_text("utf-8"))
    assert document["bomFormat"] == "CycloneDX"
    main = document["metadata"]["component"]
    assert (main["name"], main["version"]) == ("cni-bridge", __version__)
    found = {(one["name"].lower().replace("_", "-"), one["version"]) for one in document["components"]}
    pinned = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "packaging/constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert {pin for pin in pinned if pin[0] not in NOT_ON_LINUX} <= found
    assert ("cni-invoker", __version__) in found
    assert [one["name"] for one in document["components"] if not one.get("licenses")] == []


def test_the_plugin_is_complete(release: Path) -> None:
    """The archive has what `docker plugin create` needs, with root as the owner."""
    (archive,) = release.glob("plugin/*.tar.xz")
    with tarfile.open(archive) as plugin:
        members = {member.name: member for member in plugin.getmembers()}
    assert {"plugin/config.json", "plugin/rootfs/usr/bin/cni-bridge"} <= members.keys()
    assert {member.uid for member in members.values()} == {0}


def test_a_key_that_gpg_does_not_have(keys: Mapping[str, str], tmp_path: Path) -> None:
    """Nothing is made."""
    command = (str(ROOT / "packaging/build-release"), str(tmp_path))
    environment = {**keys, "KEY": "unknown@example.org"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gpg cannot sign with the key unknown@example.org" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_apt_installs_it(machine: Machine) -> None:
    """Apt trusts the repository and installs this release; then the host goes back to the release before."""
    assert "W:" not in machine.run("apt-get", "update").stdout
    machine.run("apt-get", "install", "--yes", "cni-bridge")
    installed = machine.run("dpkg-query", "--show", "--showformat=${Version}", "cni-bridge").stdout
    assert re.fullmatch(rf"{re.escape(__version__)}~[a-z]+\d+", installed)
    assert machine.run("cni-bridge", "status").stdout.startswith("fine: the Docker Engine answers")
    assert machine.run("apt-get", "--yes", "upgrade").returncode == 0

    earlier = installed.replace(__version__, EARLIER)
    machine.run("apt-get", "install", "--yes", "--allow-downgrades", f"cni-bridge={earlier}")
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "cni-bridge").stdout == earlier
    assert machine.run("cni-bridge", "status").stdout.startswith("fine: the Docker Engine answers")


def test_apt_refuses_what_was_changed(machine: Machine, keys: Mapping[str, str]) -> None:
    """A changed package, a changed list, and one signed with another key are refused, and nothing is installed."""
    machine.run("apt-get", "update")
    for package in machine.path(f"{SERVED}/apt/pool").glob("*/*.deb"):
        content = package.read_bytes()
        package.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused = machine.run("apt-get", "install", "--yes", "cni-bridge", check=False)
    assert (refused.returncode, "Hash Sum mismatch" in refused.stdout) == (100, True)

    (suite,) = re.findall(r"^Suites: (.+)$", machine.path(SOURCES).read_text("ascii"), re.MULTILINE)
    listed = machine.path(f"{SERVED}/apt/dists/{suite}/InRelease")
    text = listed.read_text("utf-8")
    listed.write_text(text.replace("Label: cni-bridge", "Label: cni-bridgE"), "utf-8")
    assert refuse_update(machine)
    listed.unlink()
    other = dict(keys)
    sign = ("gpg", "--batch", "--local-user", "other@example.org", "--clearsign", "--output", str(listed))
    run_program(*sign, str(listed.with_name("Release")), environment=other)
    assert refuse_update(machine)
    assert machine.run("dpkg-query", "--show", "cni-bridge", check=False).returncode != 0


def refuse_update(machine: Machine) -> bool:
    """Return whether apt says that it does not trust the repository."""
    printed = machine.run("apt-get", "update", check=False).stdout
    return "signature" in printed or "NO_PUBKEY" in printed
