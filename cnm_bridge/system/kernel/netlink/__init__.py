# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""rtnetlink: messages, the socket, and one module for each kind of object.

Only pyroute2's constants and tables are used. Its package also imports its sockets and databases, which cost each
daemon 8 MB of memory and a seventh of its start. So that part is imported only if something asks for it.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final, cast

_PACKAGE: Final = "pyroute2"


class _Deferred(ModuleType):
    """A package whose modules can be imported, and whose own code runs when one of its names is asked for."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        vars(self).update(vars(module_from_spec(spec)))

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        module = f"{self.__name__}.{name}"
        if find_spec(module) is not None:
            return import_module(module)
        self.__class__ = ModuleType  # type: ignore[assignment]  # as importlib.util.LazyLoader does
        cast("ModuleSpec", self.__spec__).loader.exec_module(self)  # type: ignore[union-attr]  # a package has one
        return getattr(self, name)


if _PACKAGE not in sys.modules:
    _found = find_spec(_PACKAGE)
    if _found is not None:  # otherwise the first import of one of its modules fails, and says so
        sys.modules[_PACKAGE] = _Deferred(_found)
