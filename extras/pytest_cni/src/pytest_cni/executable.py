# SPDX-License-Identifier: Apache-2.0
"""One plugin, executed as the specification says, and how an execution ended.

It is executed directly, not by a runtime: a runtime repairs, repeats and refuses.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from cni_invoker import JsonObject, Result
from cni_invoker.errors import BadResult

__all__ = ["CHECK_SINCE", "GC_SINCE", "Ended", "Plugin", "at_least"]

CHECK_SINCE: Final = "0.4.0"
GC_SINCE: Final = "1.1.0"
"""The versions that introduced CHECK, and GC and STATUS."""
_LIMIT_S: Final = 60.0
_DIRECTORIES: Final = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")


def at_least(version: str, other: str) -> bool:
    """Return whether a version of the specification is not older than another."""
    return [int(part) for part in version.split(".")] >= [int(part) for part in other.split(".")]


@dataclass(frozen=True, slots=True)
class Ended:
    """How an execution ended.

    Attributes:
        verb: The CNI_COMMAND.
        version: The `cniVersion` of the input.
        stdin: The input.
        status: The exit status; negative: the signal that killed it.
        stdout: What it printed.
        stderr: What it wrote to standard error.
    """

    verb: str
    version: str
    stdin: str
    status: int
    stdout: str
    stderr: str

    def fail(self, reason: str) -> NoReturn:
        """Fail the test; the report has the reason, and all that the plugin has been given and has said."""
        lines = [f"{self.verb}: {reason}", f"exit status {self.status}"]
        for name, text in (("input", self.stdin), ("standard output", self.stdout), ("standard error", self.stderr)):
            lines += [f"{name}:", *(f"    {line}" for line in text.splitlines() or ["(empty)"])]
        raise _failure("\n".join(lines)) from None

    def succeeded(self) -> None:
        """Require success."""
        if self.status != 0:
            self.fail(f"it must succeed{self._said()}")

    def document(self) -> JsonObject:
        """Require that standard output is one JSON object and nothing else, and return it."""
        try:
            document: Any = json.loads(self.stdout)
        except ValueError as exc:
            self.fail(f"standard output is not one JSON object: {exc}")
        if not isinstance(document, dict):
            self.fail("standard output is not one JSON object")
        return document

    def result(self) -> Result:
        """Require success with a result in the version of the input, and return it."""
        self.succeeded()
        document = self.document()
        if document.get("cniVersion") != self.version:
            self.fail(f"cniVersion of the result is {document.get('cniVersion')!r}, not {self.version!r}")
        try:
            return Result.from_document(document)
        except BadResult as exc:
            self.fail(f"the result is invalid: {exc.reason}")

    def error(self, *codes: int) -> JsonObject:
        """Require an error in the form of the specification, with one of the codes if any are given, and return it."""
        if self.status == 0:
            self.fail("it must fail")
        document = self.document()
        for key, kind in (("code", int), ("msg", str)):
            if not isinstance(document.get(key), kind):
                self.fail(f"the error has no {key!r} of type {kind.__name__}")
        if codes and document["code"] not in codes:
            self.fail(f"the error has code {document['code']}, not {' or '.join(map(str, codes))}{self._said()}")
        return document

    def _said(self) -> str:
        """Return the message of a CNI error, if it has printed one."""
        try:
            return f"; it says {json.loads(self.stdout)['msg']!r}"
        except (ValueError, KeyError, TypeError):
            return ""


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin under test.

    Attributes:
        path: The executable.
        configuration: What it receives, without `cniVersion` and `name`.
        is_ipam: It is an IPAM plugin: it assigns addresses, and makes no interface.
        versions: The versions that it supports and this program knows, the oldest first.
    """

    path: Path
    configuration: JsonObject = field(hash=False)
    is_ipam: bool
    versions: tuple[str, ...] = ()

    def execute(
        self,
        verb: str,
        version: str,
        *,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        keys: JsonObject | None = None,
    ) -> Ended:
        """Execute it.

        Args:
            verb: The CNI_COMMAND.
            version: The `cniVersion`.
            stdin: The whole input; None: the configuration.
            env: CNI's other variables.
            keys: Further keys of the configuration.
        """
        document = {**self.configuration, "cniVersion": version, "name": "pytest-cni", **(keys or {})}
        given = json.dumps(document, indent=1) if stdin is None else stdin
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CNI_")}
        path = os.pathsep.join([str(self.path.parent), *_DIRECTORIES])
        try:
            ended = subprocess.run(
                (self.path,),
                input=given.encode(),
                env={**plain, "CNI_COMMAND": verb, "CNI_PATH": path, **(env or {})},
                capture_output=True,
                check=False,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise _failure(f"{verb}: it has not ended after {_LIMIT_S:.0f} seconds") from None
        except OSError as exc:
            raise _failure(f"{self.path} cannot be executed: {exc}") from None
        out, err = ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        return Ended(verb, version, given, ended.returncode, out, err)


def _failure(text: str) -> BaseException:
    """Return what fails a test with this text and nothing else: neither our lines nor our exceptions interest."""
    return pytest.fail.Exception(text, pytrace=False)
