# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Debian packages of another suite than the machine's, unpacked into the user's cache; nothing is installed.

    $XDG_CACHE_HOME/cni-bridge, or ~/.cache/cni-bridge
      KIND/VERSION[_VERSION…]_ARCHITECTURE/   the unpacked files of packages that belong together, by their versions
      KIND/SUITE                              a link to what the suite had when it was fetched last

The mirror is the one that the machine's apt uses. apt checks the signature of the suite, and with it the hash of each
package, in separate directories, so that the machine's package lists do not change. A suite of Ubuntu comes from
the mirror that the variable LAB_UBUNTU_MIRROR names; Debian has a package of the keys.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_UBUNTU: Final = frozenset({"noble"})
_UBUNTU_MIRROR: Final = "LAB_UBUNTU_MIRROR"
_LIMIT_S: Final = 900.0  # some 300 MB through a slow mirror, unpacked on a busy machine


class FetchError(Exception):
    """Packages could not be fetched; the message has the output of the program that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """Packages that were fetched together.

    Attributes:
        directory: What stands for `/` of the machine they were made for.
        version: The Debian version of the first of them, e.g. `1.9.1+ds1-1`.
    """

    directory: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Where the packages of a suite are.

    Attributes:
        mirror: Its address.
        components: The parts of the archive that are used.
        keyring: The keys that sign the suite; None for those that apt trusts anyway.
    """

    mirror: str
    components: str
    keyring: Path | None


def find_archive(suite: str) -> Archive:
    """Return where a suite of Debian or Ubuntu is, e.g. `sid` or `noble`.

    Raises:
        FetchError: No mirror of it is known here, or Ubuntu's keys could not be had.
    """
    if suite not in _UBUNTU:
        return Archive(mirror=_find_mirror(), components="main", keyring=_KEYRING if _KEYRING.exists() else None)
    mirror = os.environ.get(_UBUNTU_MIRROR)
    if not mirror:
        raise FetchError(f"{suite} is Ubuntu's, and {_UBUNTU_MIRROR} does not name a mirror of Ubuntu")
    keys = find_packages("keyrings", "trixie") or fetch_packages("keyrings", "trixie", ("ubuntu-keyring",), check=_keys)
    return Archive(mirror=mirror, components="main universe", keyring=_keys(keys))


def find_packages(kind: str, suite: str) -> Unpacked | None:
    """Return what was fetched before as a kind, e.g. `plugins`, of a suite; None if nothing was."""
    link = cache_directory(kind) / suite
    return _describe(link.resolve()) if link.exists() else None


def fetch_packages(
    kind: str, suite: str, packages: Sequence[str], check: Callable[[Unpacked], object], *, whole: bool = False
) -> Unpacked:
    """Fetch packages of a suite; after a failure what was fetched before is kept.

    Args:
        kind: What they are together, a directory of the cache.
        suite: E.g. `sid`.
        packages: Their names; the first one's version is that of all.
        check: Told where they are before they are kept; raises `FetchError` if they do not run on this machine.
        whole: Whether all that they depend on is unpacked with them, so that they can stand alone.

    Raises:
        FetchError: They could not be had.
    """
    archive = find_archive(suite)
    architecture = run_program("dpkg", "--print-architecture").strip()
    cache = cache_directory(kind)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as directory:
        work = Path(directory)
        downloaded = _download(work, suite, archive, packages, whole=whole)
        for package in downloaded:
            run_program("dpkg-deb", "--extract", str(package), str(work / "unpacked"))
        named = downloaded[:1] if whole else downloaded
        versions = dict.fromkeys(run_program("dpkg-deb", "--field", str(one), "Version").strip() for one in named)
        fetched = work / "_".join((*versions, architecture))
        (work / "unpacked").rename(fetched)
        check(_describe(fetched))
        kept = cache / fetched.name
        try:
            fetched.rename(kept)
        except OSError:  # these versions exist already, and completely, because they were renamed too
            if not kept.is_dir():
                raise
        link = work / "link"
        link.symlink_to(kept.name)
        link.replace(cache / suite)
    return _describe(kept)


def fetch_source(kind: str, suite: str, package: str) -> Path:
    """Return the upstream source of a package, unpacked into the cache as `KIND/PACKAGE-VERSION`; it is fetched once.

    Raises:
        FetchError: It could not be had.
    """
    cache = cache_directory(kind)
    cache.mkdir(parents=True, exist_ok=True)
    for kept in cache.glob(f"{package}-[0-9]*"):
        return kept
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as directory:
        work = Path(directory)
        apt = _configure_apt(work, suite, find_archive(suite), kind="deb-src")
        run_program(*apt, "source", "--download-only", "--tar-only", package, cwd=work)
        archive = _only(list(work.glob(f"{package}_*.orig.tar.*")), package)
        work.joinpath("unpacked").mkdir()
        run_program("tar", "--extract", f"--file={archive}", "--directory=unpacked", "--strip-components=1", cwd=work)
        version = archive.name.removeprefix(f"{package}_").partition(".orig.")[0]
        return work.joinpath("unpacked").rename(cache / f"{package}-{version}")


def run_program(
    *command: str, cwd: Path | None = None, stdin: str = "", environment: dict[str, str] | None = None
) -> str:
    """Run a program and return what it printed.

    Raises:
        FetchError: It is not there, cannot be executed, failed, or did not end in time.
    """
    program = shutil.which(command[0])
    if program is None:
        raise FetchError(f"{command[0]} is not there")
    env = {**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})}
    try:
        done = subprocess.run(
            (program, *command[1:]),
            cwd=cwd,
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise FetchError(f"{command[0]} did not end within {_LIMIT_S:g} s") from exc
    except OSError as exc:
        raise FetchError(f"{command[0]}: {exc.strerror}") from exc
    if done.returncode != 0:
        raise FetchError(f"{Path(command[0]).name}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def cache_directory(kind: str) -> Path:
    """Return the directory of the cache for a kind, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cni-bridge" / kind


def _describe(directory: Path) -> Unpacked:
    return Unpacked(directory=directory, version=directory.name.partition("_")[0])


def _keys(unpacked: Unpacked) -> Path:
    """Return the keys of Ubuntu's archive in their package."""
    path = unpacked.directory / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
    if not path.exists():
        raise FetchError(f"{path} is not there")
    return path


def _find_mirror() -> str:
    """Return the address of the mirror from which this machine has its own Debian packages."""
    wanted = ("Origin: Debian", "Label: Debian", "Component: main", "Created-By: Packages")
    found = run_program("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()
    if not found:
        raise FetchError("apt knows no Debian mirror here; does this machine run Debian, and was `apt-get update` run?")
    return found[0]


def _download(work: Path, suite: str, archive: Archive, names: Sequence[str], *, whole: bool) -> list[Path]:
    """Download packages into `work`, in the order of `names`, those they depend on after them."""
    apt = _configure_apt(work, suite, archive)
    if not whole:
        run_program(*apt, "download", *names, cwd=work)
        return [_only(list(work.glob(f"{name}_*.deb")), name) for name in names]
    run_program(*apt, "--yes", "--no-install-recommends", "--download-only", "install", *names, cwd=work)
    every = sorted(work.glob("cache/archives/*.deb"))
    chosen = [_only([package for package in every if package.name.startswith(f"{name}_")], name) for name in names]
    return chosen + [package for package in every if package not in chosen]


def _configure_apt(work: Path, suite: str, archive: Archive, kind: str = "deb") -> tuple[str, ...]:
    """Return an apt-get that has nothing but this one source, and directories of its own; its lists are up to date."""
    targets = "Packages" if kind == "deb" else "Sources"
    source = {"Types": kind, "URIs": archive.mirror, "Suites": suite, "Components": archive.components}
    source["Targets"] = targets
    if archive.keyring is not None:
        source["Signed-By"] = str(archive.keyring)
    work.joinpath("suite.sources").write_text("".join(f"{key}: {value}\n" for key, value in source.items()))
    work.joinpath("status").touch()
    for directory in ("state/lists/partial", "cache/archives/partial"):
        work.joinpath(directory).mkdir(parents=True)
    settings = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",  # for this apt nothing is installed
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "suite.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",  # the machine's own may forbid other suites
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Default-Release": "",
        "APT::Update::Error-Mode": "any",  # otherwise an unreachable mirror is only a warning
        "APT::Sandbox::User": "root",  # apt's own user may not enter a home directory
    }
    apt = ("apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items()))
    run_program(*apt, "update", cwd=work)
    return apt


def _only(packages: list[Path], name: str) -> Path:
    if len(packages) != 1:
        raise FetchError(f"apt-get download left {len(packages)} packages {name}")
    return packages[0]
