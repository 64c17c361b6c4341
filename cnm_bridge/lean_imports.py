# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Imports the daemon's libraries without what it does not use of them; that is a fifth of the time to the first answer.

- structlog imports rich where it is installed, to colour tracebacks. The daemon's are plain or JSON.
- aiohttp, when it is imported, reads twice the certificates of all authorities that the machine trusts. An engine at a
  Unix socket shows no certificate.
"""

import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["lean_imports"]


@contextmanager
def lean_imports(*, certificates: bool) -> Iterator[None]:
    """Import structlog and aiohttp for the first time within the block; afterwards all is as it was before.

    Args:
        certificates: Whether certificates are needed. Without them the HTTPS contexts that aiohttp creates on import
            trust no certificate: connections are refused, never left unchecked.
    """
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
    """Take the place of a method that reads certificates."""


@contextmanager
def _replaced(owner: type, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of a class for a while, also one that it inherits."""
    is_own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
