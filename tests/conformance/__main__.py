# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.conformance --driver COMMAND`: verdicts on a CNI runtime, or a table of several."""

import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tests.conformance.case import Case, Level, load_cases
from tests.conformance.driver import Driver
from tests.conformance.run import run_case
from tests.differential.libcni import FetchError, build_cnitool, build_driver

_LIBCNI: Final = Path(__file__).with_name("libcni")
_LIBCNI_CACHE: Final = Path("/var/lib/cni")
_PRIVATE: Final = 'mkdir -p "$1" && mount -t tmpfs tmpfs "$1" && shift && exec "$@"'

Verdicts = dict[str, tuple[str, ...]]
"""What is wrong, by case."""


@click.command()
@click.option("--driver", "drivers", multiple=True, metavar="[NAME=]COMMAND", help="Repeatable.")
@click.option("--libcni", is_flag=True, help="Also test libcni and cnitool, which are built with Debian's packages.")
@click.option("--build", is_flag=True, help="Build these two, and do nothing else.")
@click.option("--case", "wanted", multiple=True, metavar="ID", help="Only this one. Repeatable.")
@click.option("--table", is_flag=True, help="Print a table for docs/conformance.md.")
@click.option("--private", is_flag=True, hidden=True)
def main(
    drivers: Sequence[str], wanted: Sequence[str], *, libcni: bool, build: bool, table: bool, private: bool
) -> None:
    """Run each case with each runtime; exit with status 1 if the last one does not conform to the specification.

    COMMAND is followed by `add`, `check` or `del`, the network's name and the path of a namespace, unless it places
    them itself: {verb}, {network}, {netns}. {cache} is the directory in which it stores attachments. A runtime that
    does not name {cache} uses /var/lib/cni, in a mount namespace of its own, which needs root.
    """
    if build:
        click.echo("\n".join(_build()))
        return
    if libcni:
        drivers = [*drivers, *_build()]
    if not drivers:
        raise click.UsageError("there is nothing to test: give a --driver")
    if not private and any("{cache}" not in driver for driver in drivers):
        again = [sys.executable, "-m", "tests.conformance", "--private", *sys.argv[1:]]
        inside = ["unshare", "--mount", "sh", "-c", _PRIVATE, "sh", str(_LIBCNI_CACHE), *again]
        sys.exit(subprocess.run(inside, check=False).returncode)
    cases = [case for case in load_cases() if not wanted or case.id in wanted]
    named = [driver.partition("=")[::2] if _is_named(driver) else (driver.split()[0], driver) for driver in drivers]
    verdicts = {name: _judge(cases, Driver.parse(command)) for name, command in named}
    if table:
        _print_table(cases, verdicts)
        return
    for name, found in verdicts.items():
        for case in cases:
            click.echo(f"{'ok  ' if not found[case.id] else 'FAIL'} {case.level:6} {case.id}: {case.text}")
            for failure in found[case.id]:
                click.echo(f"       {failure}")
        counts = Counter(case.level for case in cases if found[case.id])
        failed = ", ".join(f"{level} {count}" for level, count in counts.items())
        click.echo(f"{name}: {len(cases) - counts.total()} of {len(cases)}; failed: {failed or 'none'}")
        if counts[Level.SPEC] and name == named[-1][0]:
            sys.exit(1)


def _build() -> tuple[str, str]:
    """Build libcni and cnitool; return their drivers."""
    try:
        libcni, cnitool = build_driver(_LIBCNI), build_cnitool()
    except FetchError as exc:
        raise click.ClickException(f"libcni cannot be built: {exc}") from exc
    verbs = "{verb} {network} {netns}"
    return f"libcni={libcni} {{cache}} {verbs}", f"cnitool={shlex.join(cnitool)} {verbs}"


def _is_named(driver: str) -> bool:
    return "=" in driver.split(maxsplit=1)[0]


def _judge(cases: Sequence[Case], driver: Driver) -> Verdicts:
    verdicts: Verdicts = {}
    uses_given = any("{cache}" in word for word in driver.command)
    with tempfile.TemporaryDirectory(prefix="conformance-") as made:
        for case in cases:
            directory = Path(made, case.id)
            directory.mkdir()
            if not uses_given:
                for file in (_LIBCNI_CACHE / "results").glob("*"):
                    file.unlink()
            verdicts[case.id] = run_case(case, driver, directory, directory / "cache" if uses_given else _LIBCNI_CACHE)
    return verdicts


def _print_table(cases: Sequence[Case], verdicts: dict[str, Verdicts]) -> None:
    click.echo(f"| case | level | what is required | {' | '.join(verdicts)} |")
    click.echo(f"| --- | --- | --- |{' --- |' * len(verdicts)}")
    for case in cases:
        marks = " | ".join("**no**" if found[case.id] else "yes" for found in verdicts.values())
        click.echo(f"| `{case.id}` | {case.level} | {case.text.replace('|', '/')} | {marks} |")


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance")
