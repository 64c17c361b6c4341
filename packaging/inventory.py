# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python packaging/inventory.py FILE`: writes the licences and known vulnerabilities of the libraries of a release.

The libraries are those of packaging/constraints.txt. Their archives have the licences; pip-audit asks PyPI's database
of vulnerabilities. If that does not answer, or does not know a library, the file and standard error say so. The file is
JSON:

    {"libraries": [{"name": "click", "version": "8.1.8", "licence": "BSD-3-Clause", "vulnerabilities": []}, …],
     "notExamined": [{"name": "plyvel", "reason": "…"}]}

A library that was not examined has null in place of the list. The exit status is 1 if a library has a known
vulnerability, or no licence.
"""

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

__all__ = ["describe_licence", "findings", "make_inventory"]

CONSTRAINTS: Final = Path(__file__).with_name("constraints.txt")
_LIMIT_S: Final = 600.0
_NAME_CHARACTERS: Final = 80
"""Some libraries have the whole text in the field for the licence's name."""
UNKNOWN: Final = "unknown"


def describe_licence(metadata: Message) -> str:
    """Return the licence in a library's metadata (PEP 639): an SPDX expression, a classifier, or its own words."""
    classifiers = metadata.get_all("Classifier", [])
    found = [one.split(" :: ")[-1] for one in classifiers if one.startswith("License :: ")]
    own = str(metadata.get("License") or "").strip()
    is_name = own and "\n" not in own and len(own) <= _NAME_CHARACTERS
    return str(metadata.get("License-Expression") or ", ".join(found) or (own if is_name else UNKNOWN))


def make_inventory(libraries: Iterable[Message], audit: Sequence[Mapping[str, Any]], reason: str) -> dict[str, Any]:
    """Return the inventory.

    Args:
        libraries: Their metadata.
        audit: What pip-audit found of each.
        reason: Why it found nothing of the others.
    """
    known = {one["name"].lower().replace("_", "-"): one for one in audit}
    found, not_examined = [], []
    for library in sorted(libraries, key=lambda one: str(one["Name"]).lower()):
        audited = known.get(library["Name"].lower().replace("_", "-"), {"skip_reason": reason})
        if "skip_reason" in audited:
            not_examined.append({"name": library["Name"], "reason": audited["skip_reason"]})
        vulnerabilities = [
            {"id": one["id"], "aliases": one["aliases"], "fixedIn": one["fix_versions"]}
            for one in audited.get("vulns", ())
        ]
        found.append(
            {
                "name": library["Name"],
                "version": library["Version"],
                "licence": describe_licence(library),
                "vulnerabilities": None if "skip_reason" in audited else vulnerabilities,
            }
        )
    return {"libraries": found, "notExamined": not_examined}


def findings(inventory: Mapping[str, Any]) -> list[str]:
    """Return what keeps a release back: libraries with known vulnerabilities, and those without a licence."""
    return [
        f"{one['name']} {one['version']}: {what}"
        for one in inventory["libraries"]
        for what in (
            *(f"{found['id']}, fixed in {', '.join(found['fixedIn'])}" for found in one["vulnerabilities"] or ()),
            *(["its metadata has no licence"] if one["licence"] == UNKNOWN else []),
        )
    ]


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", *command), capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )


def _libraries() -> Iterator[Message]:
    options = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--requirement",
        str(CONSTRAINTS),
    )
    with TemporaryDirectory() as directory:
        done = _run("pip", "download", *options, "--dest", directory)
        if done.returncode:
            raise SystemExit(f"pip cannot download the libraries of {CONSTRAINTS}: {done.stderr.strip()}")
        for archive in Path(directory).iterdir():
            yield message_from_bytes(_read_metadata(archive))


def _read_metadata(archive: Path) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(archive) as source:
        name = min((name for name in source.getnames() if name.endswith("/PKG-INFO")), key=len)
        found = source.extractfile(name)
        return found.read() if found is not None else b""


def _audit() -> tuple[Sequence[Mapping[str, Any]], str]:
    options = ("--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json")
    try:
        done = _run("pip_audit", *options, "--requirement", str(CONSTRAINTS))
    except subprocess.TimeoutExpired:
        return (), f"pip-audit took longer than {_LIMIT_S:g} s"
    try:
        audit: Sequence[Mapping[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return (), (done.stderr.strip().splitlines() or ["pip-audit did not print what it found"])[-1]
    return audit, "pip-audit did not look at it"


def main(arguments: Sequence[str]) -> int:
    """Write the file, and print what was found."""
    inventory = make_inventory(_libraries(), *_audit())
    Path(arguments[0]).write_text(json.dumps(inventory, indent=2) + "\n", "utf-8")
    missing = inventory["notExamined"]
    print(f"{arguments[0]}: {len(inventory['libraries'])} libraries")
    if missing:
        print(f"known vulnerabilities of {len(missing)} were not examined: {missing[0]['reason']}", file=sys.stderr)
    found = findings(inventory)
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
