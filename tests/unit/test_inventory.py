# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A release has an inventory of its libraries' licences and known vulnerabilities."""

import importlib.util
import sys
from email import message_from_string
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(name="inventory", scope="module")
def load_script() -> ModuleType:
    """Import the script, which is in no package."""
    spec = importlib.util.spec_from_file_location("inventory", Path(__file__).parents[2] / "packaging/inventory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library(name: str, **headers: str) -> Message:
    """Return the metadata of a library."""
    lines = [f"Name: {name}", "Version: 1.2", *(f"{key.replace('_', '-')}: {text}" for key, text in headers.items())]
    return message_from_string("\n".join((*lines, "")))


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ({"License_Expression": "MIT", "License": "old"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: BSD License", "License": "x"}, "BSD License"),
        ({"Classifier": "Topic :: X", "License": "Apache-2.0"}, "Apache-2.0"),
        ({"License": "Permission is hereby granted,\n  free of charge"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_licences(inventory: ModuleType, headers: dict[str, str], licence: str) -> None:
    """The most precise of three places; a whole text is not a name."""
    assert inventory.describe_licence(library("click", **headers)) == licence


def test_a_vulnerability_is_found(inventory: ModuleType) -> None:
    """With the version that fixes it; names are compared as PyPI does, and the order is theirs."""
    libraries = [library("Typing_Extensions", License="PSF"), library("click", License="BSD")]
    found = {"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fix_versions": ["1.3"], "description": "…"}
    audit = [{"name": "click", "vulns": []}, {"name": "typing-extensions", "version": "1.2", "vulns": [found]}]
    made = inventory.make_inventory(libraries, audit, "")
    assert [one["name"] for one in made["libraries"]] == ["click", "Typing_Extensions"]
    assert made["libraries"][1]["vulnerabilities"] == [{"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fixedIn": ["1.3"]}]
    assert made["notExamined"] == []
    assert inventory.findings(made) == ["Typing_Extensions 1.2: PYSEC-1, fixed in 1.3"]


@pytest.mark.parametrize("audit", [[], [{"name": "click", "skip_reason": "no route to host"}]])
def test_a_database_that_does_not_answer(inventory: ModuleType, audit: list[dict[str, str]]) -> None:
    """The file says so: no vulnerability is not the same as none known. A missing licence is found all the same."""
    made = inventory.make_inventory([library("click")], audit, "no route to host")
    assert made["notExamined"] == [{"name": "click", "reason": "no route to host"}]
    assert made["libraries"][0]["vulnerabilities"] is None
    assert inventory.findings(made) == ["click 1.2: its metadata has no licence"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'no route to host' >&2; exit 1", "no route to host"),
        ("echo '{}'", "pip-audit did not print what it found"),
        ("echo '[]'; echo 'another format' >&2", "another format"),
        ("exec sleep 60", "pip-audit took longer than 0.2 s"),
    ],
)
def test_an_audit_that_fails(
    inventory: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    """It fails, prints something else, or does not end: nothing was examined, and the reason is known."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    if "sleep" in script:
        monkeypatch.setattr(inventory, "_LIMIT_S", 0.2)
    assert inventory._audit() == ((), reason)
