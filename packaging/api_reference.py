# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The page docs/cni-invoker-api.md of the site, from the docstrings of the library; see `docs_site.py`."""

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Final

MODULES: Final = {
    "cni_invoker": "What most programs need.",
    "cni_invoker.errors": "All errors. Each has `code`, `msg` and `details`.",
    "cni_plugin": "For plugins.",
    "cni_invoker.advanced": "For programs that manage links or records themselves; it may change in minor versions.",
    "cni_tool": "A runtime that stores its attachments; a distribution of its own.",
}
_INTRODUCTION: Final = """# cni_invoker: the names

Made from the docstrings. Begin with the [tutorial](cni-invoker.md).
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
            if inspect.isfunction(value) or (not issubclass(value, enum.Enum | BaseException) and _is_made(value)):
                yield f"`{_awaited(value)}{name}{_signature(value)}`"
                yield ""
            yield from _render_docstring(value)
            if inspect.isclass(value) and not issubclass(value, enum.Enum) and module.__name__ != "cni_invoker.errors":
                yield from _render_members(value)
        else:
            yield f"`{value!r}`" if isinstance(value, tuple) else f"A constant of type `{type(value).__name__}`."
            yield ""


def _render_members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod) else member
        if isinstance(member, property | cached_property) and not name.startswith("_"):
            yield f"#### {kind.__name__}.{name}"
            yield ""
            yield from _render_docstring(member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        yield f"#### {_awaited(function)}{kind.__name__}.{name}{_signature(function, is_method=True)}"
        yield ""
        yield from _render_docstring(function)


def _awaited(function: object) -> str:
    if inspect.isasyncgenfunction(inspect.unwrap(function) if callable(function) else function):
        return "async with " if hasattr(function, "__wrapped__") else "async for … in "
    return "await " if inspect.iscoroutinefunction(function) else ""


def _is_made(kind: type) -> bool:
    """Return whether programs make objects of a class: not of a protocol, or of one whose objects are given."""
    return kind.__init__ is not object.__init__ and not getattr(kind, "_is_protocol", False)


def _signature(function: Callable[..., object], *, is_method: bool = False) -> str:
    """Return the parameters with their defaults, without types: those are in the docstring, and in the source."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    plain = [
        one.replace(annotation=one.empty, default=one.default if _is_plain(one.default) else _Omitted())
        for one in parameters
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _is_plain(default: object) -> bool:
    return default is inspect.Parameter.empty or isinstance(default, str | int | float | tuple | None)


class _Omitted:
    """Stands for a default that has no short form."""

    def __repr__(self) -> str:
        return "…"


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
