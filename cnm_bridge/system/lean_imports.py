# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Imports libraries without their unused parts, which saves a fifth of the start-up time.

- structlog imports rich, if it is installed, to colour tracebacks. The daemon's tracebacks are plain or JSON.
- aiohttp reads all CA certificates of the machine twice during import. An engine at a Unix socket needs none.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["lean_imports"]


@contextmanager
def lean_imports(*, certificates: bool) -> Iterator[None]:
    """Make the first import of structlog and aiohttp within the block cheap; undo all changes afterwards.

    Args:
        certificates: Whether CA certificates are needed. If not, the TLS contexts that aiohttp creates on import trust
            no certificate: HTTPS connections fail; they are never left unverified.
    """
    import ssl  # noqa: PLC0415 - it takes a while, and the socket opens after this module has been imported

    with ExitStack() as stack:
        if "rich" not in sys.modules:
            # Documented to make the import fail (The import system, "The module cache").
            sys.modules["rich"] = None  # type: ignore[assignment]
            stack.callback(sys.modules.pop, "rich")
        if not certificates:
            for method in ("load_default_certs", "set_default_verify_paths"):
                stack.enter_context(_replaced(ssl.SSLContext, method, _read_nothing))
        yield


def _read_nothing(*_: object) -> None:
    """Replacement for a method that reads certificates."""


@contextmanager
def _replaced(owner: type, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of a class, also an inherited one, during the block."""
    is_own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
