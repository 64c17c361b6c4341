# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names of all JSON schemas."""

from importlib.resources import files
from typing import Final

SCHEMA_NAMES: Final = tuple(
    sorted(
        f"{folder.name}/{file.name.removesuffix('.json')}"
        for folder in files("cni_bridge_spec").iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".json")
    )
)
