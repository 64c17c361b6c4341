# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The configuration file: TOML, one key per option of `cni-bridge serve`, spelled as the option."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cnm_bridge.errors import BadOption

__all__ = ["read_config_file"]

TomlValue = str | int | float | bool | list[str]


def read_config_file(path: Path, known: Iterable[str]) -> Mapping[str, TomlValue]:
    """Return the values of a configuration file by option name, e.g. `{"cni-conf-dir": ["/etc/cni/net.d"]}`.

    Args:
        path: The file.
        known: The options there are.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML; the text names line and column.
        BadOption: A key is no option, or its value is a table.
    """
    names = frozenset(known)
    document = tomllib.loads(path.read_text("utf-8"))
    for key, value in document.items():
        if key not in names:
            raise BadOption.unknown(key, names)
        if not isinstance(value, str | int | float | list):
            raise BadOption(key, f"cannot be {type(value).__name__}")
    return document
