# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.pythons`: the fast tests under other interpreters than the machine's.

An interpreter in PATH is used as it is. Otherwise it is that of another suite of Debian or Ubuntu; nothing is
installed. It needs that suite's libc, and a LevelDB for Python that PyPI does not have for it; so all that it depends
on is unpacked into the cache that `debian` describes, as a root directory. In it a process sees the machine's own /etc,
/dev, /proc, home and temporary files. What else the tests need is PyPI's, in a virtual environment in the cache.
"""

import argparse
import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, Unpacked, cache_directory, fetch_packages, find_packages, run_program

VERSIONS: Final = {"3.12": "noble", "3.13": "trixie", "3.14": "sid"}
"""The supported versions except the oldest, with the suite of Debian or Ubuntu that has one."""

_REPOSITORY: Final = Path(__file__).parents[2]
_OF_EXTRAS: Final = ("extras/cni_plugin/tests/unit", "extras/cni_tool/tests/unit")
_TESTS: Final = ("-m", "pytest", "-p", "no:cacheprovider", "tests/unit", "tests/contract", *_OF_EXTRAS)
_SAME: Final = (
    "tests/contract/test_differential.py",
    "tests/contract/test_docs.py",
    "tests/contract/test_pages.py",
    "tests/contract/test_import_names.py",
    "tests/contract/test_schemas.py",
    "tests/unit/test_package_scripts.py",
    "tests/unit/state/test_damage.py::test_no_damage_prevents_a_start",
)
"""Tests beside libcni, of damaged files, documents and scripts: their outcome does not depend on the interpreter."""
_PATH: Final = (_REPOSITORY, *sorted(_REPOSITORY.glob("extras/*/src")))
_ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATH))}
"""Programs that tests start elsewhere, such as plugins in Python, import the packages, too."""
_KIND: Final = "pythons"
_PACKAGES: Final = (
    "python{version}-venv",
    "python3-plyvel",
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "dpkg",
    "grep",
    "tar",
    "util-linux",
)
_UNNEEDED: Final = ("cni-invoker", "import-linter", "mypy", "pytest-cov", "ruff", "types-")
"""Beginnings of the names of packages that only one interpreter needs."""

_ENTER: Final = """
root=$1 directory=$2; shift 2
for shared in /dev /etc /opt /proc /sys /tmp "$HOME" "$directory"; do
    mkdir -p "$root$shared"
    mount --no-mtab --rbind "$shared" "$root$shared"
done
exec chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$directory" "$@"
"""
"""Replaces the machine's directories by those of a root directory, for one process, and runs a command in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python of some version.

    Attributes:
        enter: The beginning of each command that runs below its root directory; empty for the machine's own.
        make_venv: The command that makes a virtual environment in the directory that is appended to it. One of a suite
            sees the suite's packages, because LevelDB is among them.
    """

    enter: Sequence[str]
    make_venv: Sequence[str]


def main(arguments: Sequence[str]) -> int:
    """Run the fast tests under each, and print which could not be run, and why; return 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.pythons", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="VERSION", help=f"may be repeated; default: {', '.join(VERSIONS)}"
    )
    options, for_pytest = parser.parse_known_args(arguments)
    outcomes: list[str] = []
    failed = False
    for version in options.only or VERSIONS:
        try:
            command = prepare(version)
        except FetchError as exc:
            outcomes.append(f"Python {version}: not run, it cannot be had: {exc}")
            continue
        print(f"\n== Python {version}: {run_program(*command, '--version').strip()}", flush=True)
        status = subprocess.run(
            (*command, *_TESTS, *(f"--deselect={test}" for test in _SAME), *for_pytest),
            cwd=_REPOSITORY,
            env=_ENVIRONMENT,
            check=False,
        ).returncode
        outcomes.append(f"Python {version}: {'passed' if status == 0 else f'failed, exit status {status}'}")
        failed |= status != 0
    print("\n== all", *outcomes, sep="\n")
    return 1 if failed else 0


def prepare(version: str) -> Sequence[str]:
    """Return the command of an interpreter that has everything that the fast tests need, e.g. of 3.13.

    Raises:
        FetchError: It cannot be had.
    """
    interpreter = find_interpreter(version)
    place = cache_directory(_KIND) / f"venv-{version}"
    python = (*interpreter.enter, str(place / "bin/python"))
    wanted = "\n".join(read_requirements())
    done = place / "requirements"
    if not done.exists() or done.read_text("utf-8") != wanted:
        run_program(*interpreter.make_venv, str(place))
        run_program(*python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted.split("\n"))
        done.write_text(wanted, "utf-8")
    return python


def find_interpreter(version: str) -> Interpreter:
    """Return an interpreter of a version, e.g. 3.13; one that is not in PATH is fetched.

    Raises:
        FetchError: There is none.
    """
    machine = _find_in_path(version)
    if machine is not None:
        return Interpreter(enter=(), make_venv=(machine, "-m", "venv", "--clear"))
    suite = VERSIONS.get(version)
    if suite is None:
        raise FetchError(f"there is no python{version} in PATH, and no suite of Debian or Ubuntu has one")
    names = [name.format(version=version) for name in _PACKAGES]
    root = find_packages(_KIND, suite) or fetch_packages(_KIND, suite, names, check=_check, whole=True)
    enter = (*_unshare(), "sh", "-euc", _ENTER, "sh", str(root.directory), str(_REPOSITORY))
    venv = ("-m", "venv", "--clear", "--system-site-packages")
    return Interpreter(enter=enter, make_venv=(*enter, f"/usr/bin/python{version}", *venv))


def read_requirements() -> Sequence[str]:
    """Return what the fast tests need from PyPI, as listed in setup.cfg."""
    document = configparser.ConfigParser(interpolation=None)
    document.read(_REPOSITORY / "setup.cfg", "utf-8")
    listed = document["options"]["install_requires"] + document["options.extras_require"]["dev"]
    lines = (line.replace(" ", "") for line in listed.splitlines())
    return [line for line in lines if line and not line.startswith(_UNNEEDED)]


def _find_in_path(version: str) -> str | None:
    """Return the interpreter in PATH; one that does not run, such as a version manager's stub, is ignored."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    output = subprocess.run((found, "--version"), capture_output=True, text=True, check=False).stdout
    return found if output.startswith(f"Python {version}.") else None


def _unshare() -> Sequence[str]:
    """Return the command that gives a process mounts of its own, for any user."""
    return ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))


def _check(unpacked: Unpacked) -> None:
    """Check that the root directory works on this machine."""
    run_program(*_unshare(), "chroot", str(unpacked.directory), "/usr/bin/python3", "--version")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
