# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cases, typed: files, plugins, and steps with what is expected of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import yaml

from cni_bridge_spec import (
    JsonObject,
    JsonValue,
    as_object,
    find_object,
    find_str,
    get_bool,
    get_objects,
    get_str,
    get_strings,
)

_FILE: Final = Path(__file__).with_name("cases.yaml")
_VERBS: Final = ("add", "check", "del")
_OF_STEPS: Final = frozenset(
    {
        *("ifname", "args", "capabilities", "inherited", "files", "plugins", "modes", "record"),
        *("ok", "calls", "not_called", "stdin", "environment", "result", "output", "not_output", "remembered"),
    }
)


class Level(StrEnum):
    """Who requires it; explained in the file."""

    SPEC = "spec"
    LIBCNI = "libcni"
    BETTER = "better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the runtime, what is changed before it, and what is expected of it.

    Attributes:
        verb: `add`, `check` or `del`.
        network: The network's name.
        ifname: The interface's name.
        args: CNI_ARGS.
        capabilities: The capability arguments.
        inherited: Further variables in the environment of the runtime.
        files: Configuration files that are written before.
        plugins: Plugins whose behaviour changes before.
        modes: Plugins whose file mode changes before, in octal; `absent` removes the file.
        record: What replaces the content of each record that the runtime has stored; None: they are left.
        ok: Whether the command succeeds.
        calls: The plugins' calls, e.g. `one ADD`, in order; None: any.
        not_called: Calls that must not be among them.
        stdin: By plugin, a part of its input in its first call; null stands for an absent key.
        environment: By plugin, variables in its first call.
        result: A part of what the runtime prints; None: anything.
        output: Words in standard output or standard error.
        not_output: Words that are in neither.
        remembered: Whether the runtime has a record of the attachment afterwards; None: either.
    """

    verb: str
    network: str
    ifname: str
    args: str
    capabilities: JsonObject = field(hash=False)
    inherited: JsonObject = field(hash=False)
    files: JsonObject = field(hash=False)
    plugins: JsonObject = field(hash=False)
    modes: JsonObject = field(hash=False)
    record: str | None
    ok: bool
    calls: tuple[str, ...] | None
    not_called: tuple[str, ...]
    stdin: JsonObject = field(hash=False)
    environment: JsonObject = field(hash=False)
    result: JsonObject | None = field(hash=False)
    output: tuple[str, ...]
    not_output: tuple[str, ...]
    remembered: bool | None

    @classmethod
    def from_document(cls, document: JsonObject) -> Self:
        """Return the step that an entry describes; raise ValueError if it has an unknown key."""
        (verb,) = (verb for verb in _VERBS if verb in document)
        if unknown := document.keys() - _OF_STEPS - {verb}:
            raise ValueError(f"unknown keys of a step: {', '.join(sorted(unknown))}")
        return cls(
            verb=verb,
            network=get_str(document, verb),
            ifname=find_str(document, "ifname") or "eth0",
            args=find_str(document, "args") or "",
            **{key: find_object(document, key) or {} for key in ("capabilities", "inherited", "files", "plugins")},
            modes=find_object(document, "modes") or {},
            record=find_str(document, "record"),
            ok=get_bool(document, "ok", default=True),
            calls=get_strings(document, "calls") if "calls" in document else None,
            not_called=get_strings(document, "not_called"),
            stdin=find_object(document, "stdin") or {},
            environment=find_object(document, "environment") or {},
            result=find_object(document, "result"),
            output=get_strings(document, "output"),
            not_output=get_strings(document, "not_output"),
            remembered=get_bool(document, "remembered") if "remembered" in document else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case.

    Attributes:
        id: Its name.
        source: Where it comes from: a place in libcni's source, the specification, an issue. Empty without one.
        level: Who requires it.
        text: What is required, in a sentence.
        files: The configuration files.
        plugins: The behaviour of each plugin by verb, as in `tests/plugins/fake_plugin.py`.
        steps: The commands.
    """

    id: str
    source: str
    level: Level
    text: str
    files: JsonObject = field(hash=False)
    plugins: Mapping[str, JsonObject] = field(hash=False)
    steps: tuple[Step, ...]

    @classmethod
    def from_document(cls, document: JsonObject) -> Self:
        """Return the case that an entry describes."""
        plugins = find_object(document, "plugins") or {}
        return cls(
            id=get_str(document, "id"),
            source=find_str(document, "source") or "",
            level=Level(get_str(document, "level")),
            text=get_str(document, "text"),
            files=find_object(document, "files") or {},
            plugins={name: as_object(behaviour, name) for name, behaviour in plugins.items()},
            steps=tuple(map(Step.from_document, get_objects(document, "steps"))),
        )


def load_cases() -> tuple[Case, ...]:
    """Return all cases, in order."""
    found: JsonValue = yaml.safe_load(_FILE.read_text("utf-8"))
    return tuple(map(Case.from_document, get_objects(as_object(found, "the file of cases"), "cases")))
