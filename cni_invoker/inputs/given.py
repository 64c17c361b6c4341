# SPDX-License-Identifier: Apache-2.0
"""Checks the types of what a caller gives, before anything runs; pure.

A wrong type is a mistake in the calling program, so it is a `TypeError` with the parameter's name, and no `CniError`.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

StrPath = str | os.PathLike[str]
"""A path, as a string or as an object such as `pathlib.Path`."""

T = TypeVar("T")


def require_type(value: object, kind: type[T], what: str, hint: str = "") -> T:
    """Return the value if it has the type.

    Raises:
        TypeError: It has another type; a boolean is not an integer.
    """
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    shown = f"the {type(value).__name__} {value!r:.100}"
    raise TypeError(f"{what} must be of type {kind.__name__}, not {shown}{f'; {hint}' if hint else ''}")


def as_path(value: StrPath, what: str) -> Path:
    """Return a path.

    Raises:
        TypeError: It is neither a string nor a path.
    """
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return Path(path)
    raise TypeError(f"{what} must be a str or a Path, not the {type(value).__name__} {value!r:.100}")


def as_paths(values: StrPath | Iterable[StrPath], what: str) -> tuple[Path, ...]:
    """Return paths; a single one need not be in a list.

    Raises:
        TypeError: It is neither a path nor paths.
    """
    if isinstance(values, str | os.PathLike):
        return (as_path(values, what),)
    if not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a path or several, not the {type(values).__name__} {values!r:.100}")
    return tuple(as_path(value, f"each of {what}") for value in values)
