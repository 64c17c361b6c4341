# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the executables of plugins."""

import os
from collections.abc import Sequence
from pathlib import Path

from cni_invoker.errors import PluginNotFound
from cni_invoker.inputs.names import check_plugin_type

__all__ = ["find_plugin"]


def find_plugin(plugin_type: str, plugin_dirs: Sequence[Path]) -> Path:
    """Return the first executable file called `plugin_type` in the plugin directories.

    Unlike libcni's `FindInPath`, it skips files that are not executable (because of their mode, or a file system that
    is mounted `noexec`), and reports them if it finds no other.

    Raises:
        PluginNotFound: No directory has an executable file of that name.
        InvalidParameter: The type cannot be the name of a file.
    """
    check_plugin_type(plugin_type)
    not_executable = []
    for directory in plugin_dirs:
        path = directory / plugin_type
        if os.access(path, os.X_OK) and path.is_file():
            return path
        if os.access(path, os.F_OK) and path.is_file():
            not_executable.append(path)
    raise PluginNotFound(plugin=plugin_type, directories=plugin_dirs, not_executable=not_executable)
