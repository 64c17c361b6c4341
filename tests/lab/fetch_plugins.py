# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_plugins`: newer CNI plugins than the machine's, for tests; nothing is installed.

They are Debian's own of another suite (sid, whose plugins speak CNI 1.1.0), unpacked below the user's cache directory:
`$XDG_CACHE_HOME/cni-bridge`, or `~/.cache/cni-bridge`. The mirror is the one that the machine's apt uses already; apt
checks the signatures, in directories of its own, so that the machine's package lists stay as they are.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spec import JsonError, as_object, get_strings, parse_json

__all__ = ["FetchError", "FetchedPlugins", "fetch_plugins", "find_fetched_plugins", "main"]

PACKAGE: Final = "containernetworking-plugins"
DEFAULT_SUITE: Final = "sid"
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIMIT_S: Final = 300.0  # some 20 MB through a slow mirror
_PLUGINS: Final = Path("usr/lib/cni")


class FetchError(Exception):
    """The plugins could not be had; the message says what was missing, in the words of the program that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPlugins:
    """Plugins that were fetched.

    Attributes:
        version: The version of their Debian package, e.g. `1.9.1+ds1-1`.
        directory: Where their executables are.
        cni_versions: The CNI versions that its `bridge` speaks, as it says itself.
    """

    version: str
    directory: Path
    cni_versions: tuple[str, ...]


def find_fetched_plugins(suite: str = DEFAULT_SUITE) -> FetchedPlugins | None:
    """Return what was fetched before, None if nothing was.

    Raises:
        FetchError: What was fetched does not run on this machine.
    """
    current = _cache() / suite
    return _describe(current.resolve()) if current.exists() else None


def fetch_plugins(suite: str = DEFAULT_SUITE) -> FetchedPlugins:
    """Fetch the plugins of a Debian suite; after a failure what was fetched before is still there.

    Raises:
        FetchError: They could not be had.
    """
    mirror = _mirror()
    architecture = _run("dpkg", "--print-architecture").strip()
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as directory:
        work = Path(directory)
        package = _download(work, suite, mirror)
        version = _run("dpkg-deb", "--field", str(package), "Version").strip()
        unpacked = work / "unpacked"
        _run("dpkg-deb", "--extract", str(package), str(unpacked))
        _describe(unpacked)
        kept = cache / f"{version}_{architecture}"
        if not kept.exists():
            unpacked.rename(kept)
        link = work / "link"
        link.symlink_to(kept.name)
        link.replace(cache / suite)
    return _describe(kept)


def main(arguments: Sequence[str]) -> int:
    """Fetch the plugins, unless they are there, and print where they are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.fetch_plugins",
        description=f"Fetch Debian's {PACKAGE} of another suite into the cache; nothing is installed.",
    )
    parser.add_argument("--suite", default=DEFAULT_SUITE, help="default: %(default)s")
    parser.add_argument("--refresh", action="store_true", help="ask the mirror even if some have been fetched before")
    options = parser.parse_args(arguments)
    try:
        found = None if options.refresh else find_fetched_plugins(options.suite)
        plugins = found or fetch_plugins(options.suite)
    except FetchError as exc:
        print(f"{PACKAGE} of {options.suite} cannot be had: {exc}", file=sys.stderr)
        return 1
    print(f"{PACKAGE} {plugins.version} (CNI up to {plugins.cni_versions[-1]}): {plugins.directory}")
    return 0


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cni-bridge" / "plugins"


def _mirror() -> str:
    """Return the address of the mirror from which this machine has its own Debian packages."""
    wanted = ("Origin: Debian", "Label: Debian", "Component: main", "Created-By: Packages")
    found = _run("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted).split()
    if not found:
        raise FetchError("apt knows no Debian mirror here; does this machine run Debian, and was `apt-get update` run?")
    return found[0]


def _download(work: Path, suite: str, mirror: str) -> Path:
    """Download the package into `work`, with an apt that has nothing but this one source and its own directories."""
    source = {"Types": "deb", "URIs": mirror, "Suites": suite, "Components": "main", "Targets": "Packages"}
    if _KEYRING.exists():
        source["Signed-By"] = str(_KEYRING)
    work.joinpath("suite.sources").write_text("".join(f"{key}: {value}\n" for key, value in source.items()))
    work.joinpath("status").touch()
    for directory in ("state/lists/partial", "cache/archives/partial"):
        work.joinpath(directory).mkdir(parents=True)
    settings = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",  # nothing is installed as far as this apt knows
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "suite.sources",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",  # the machine's own may forbid other suites
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Default-Release": "",
        "APT::Update::Error-Mode": "any",  # otherwise a mirror out of reach is only a warning
        "APT::Sandbox::User": "root",  # apt's own user may not enter a home directory
    }
    apt = ("apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items()))
    _run(*apt, "update", cwd=work)
    _run(*apt, "download", PACKAGE, cwd=work)
    packages = list(work.glob("*.deb"))
    if len(packages) != 1:
        raise FetchError(f"apt-get download left {len(packages)} packages")
    return packages[0]


def _describe(unpacked: Path) -> FetchedPlugins:
    """Look at what was unpacked, and whether it runs on this machine."""
    directory = unpacked / _PLUGINS
    bridge = directory / "bridge"
    said = _run(str(bridge), stdin='{"cniVersion": "1.0.0"}', environment={"CNI_COMMAND": "VERSION"})
    try:
        cni_versions = get_strings(as_object(parse_json(said.encode()), "its VERSION"), "supportedVersions")
    except JsonError as exc:
        raise FetchError(f"{bridge} does not tell its versions: {exc}") from exc
    return FetchedPlugins(version=unpacked.name.rpartition("_")[0], directory=directory, cni_versions=cni_versions)


def _run(*command: str, cwd: Path | None = None, stdin: str = "", environment: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
