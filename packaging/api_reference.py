# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python packaging/api_reference.py`: writes docs/cni-invoker-api.md from the docstrings of the library."""

import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

MODULES: Final = {
    "cni_invoker": "What most programs need.",
    "cni_invoker.sync": "The same without asyncio: methods return when they are done.",
    "cni_invoker.errors": "All errors. Each has `code`, `msg` and `details`.",
    "cni_invoker.results": "The parts of a result.",
    "cni_invoker.plugin": "For plugins.",
    "cni_invoker.advanced": "For programs that manage links or records themselves; it may change in minor versions.",
}
TARGET: Final = Path(__file__).parents[1] / "docs/cni-invoker-api.md"
_INTRODUCTION: Final = """# cni_invoker: the names

Made from the docstrings by `make reference`. Begin with the [tutorial](cni-invoker.md).
"""
_SECTION: Final = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")
_ENTRY: Final = re.compile(r"    (\w[\w, .]*): (.*)")


def render() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    for name, what in MODULES.items():
        lines += [f"## {name}", "", what, ""]
        lines += _render_module(import_module(name))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _render_module(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        yield f"### {module.__name__}.{name}"
        yield ""
        if inspect.isclass(value) or inspect.isfunction(value):
            yield from _render_docstring(value)
            if inspect.isclass(value) and not issubclass(value, enum.Enum) and module.__name__ != "cni_invoker.errors":
                yield from _render_members(value)
        else:
            yield f"`{value!r}`" if isinstance(value, tuple) else f"A constant of type `{type(value).__name__}`."
            yield ""


def _render_members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        awaited = "await " if inspect.iscoroutinefunction(function) else ""
        parameters = [
            f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
        yield f"#### {awaited}{kind.__name__}.{name}({', '.join(parameters)})"
        yield ""
        yield from _render_docstring(function)


def _render_docstring(value: object) -> Iterator[str]:
    """Yield a docstring as Markdown: each section becomes a list."""
    in_section = False
    for line in (inspect.getdoc(value) or "").splitlines():
        entry = _ENTRY.fullmatch(line)
        if (section := _SECTION.fullmatch(line)) is not None:
            in_section = True
            yield f"*{section[1]}*"
            yield ""
        elif in_section and entry is not None:
            yield f"* `{entry[1]}`: {entry[2]}"
        elif in_section and line.startswith("    "):
            yield f"  {line.strip()}"
        else:
            in_section = in_section and not line
            yield line
    yield ""


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
