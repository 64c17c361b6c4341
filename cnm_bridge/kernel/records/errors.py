# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What can go wrong with namespaces and links.

```
KernelError               the kernel refused a step
├── NamespaceMissing      the path is no live network namespace
├── NamespaceRefused      the step would have worked in a namespace that it must not touch
├── LinkMissing           the namespace has no link of that name
├── NameTaken             the host namespace already has a link of that name
├── NotCarriable          the namespace has something that cannot be carried into another one
└── SandboxNotSynced      some of what a sandbox lacked could not be brought into it
```
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENODEV, ENOENT, EOPNOTSUPP, EPERM

__all__ = [
    "KernelError",
    "LinkMissing",
    "NameTaken",
    "NamespaceMissing",
    "NamespaceRefused",
    "NotCarriable",
    "SandboxNotSynced",
    "attempt",
]


class KernelError(Exception):
    """The kernel refused a step; reads as `cannot <operation> <subject>: <reason>`.

    Attributes:
        operation: What was tried, e.g. `move out`.
        subject: What it was tried on, e.g. `link eth0 of /run/cni-bridge/netns/4f2a`.
        reason: Why it failed, in words: the kernel's own where it gave any.
        errno: The kernel's error number, None where it gave none.
    """

    def __init__(self, operation: str, subject: str, reason: str, errno: int | None = None) -> None:
        super().__init__(f"cannot {operation} {subject}: {reason}")
        self.operation = operation
        self.subject = subject
        self.reason = reason
        self.errno = errno


class NamespaceMissing(KernelError):
    """The path is no live network namespace."""

    def __init__(self, operation: str, subject: str) -> None:
        super().__init__(operation, subject, "no network namespace is mounted there", ENOENT)


class NamespaceRefused(KernelError):
    """The step would have worked in a namespace that it must not touch; nothing was done."""

    def __init__(self, operation: str, subject: str, reason: str) -> None:
        super().__init__(operation, subject, reason, EPERM)


class LinkMissing(KernelError):
    """The namespace has no link of that name.

    Attributes:
        existing: The names of the links it has.
    """

    def __init__(self, operation: str, subject: str, existing: tuple[str, ...]) -> None:
        super().__init__(operation, subject, f"no such link; there are {', '.join(existing) or 'none'}", ENODEV)
        self.existing = existing


class NameTaken(KernelError):
    """The host namespace already has a link of that name.

    Attributes:
        names: The name or names asked for, one of which is taken.
    """

    def __init__(self, operation: str, subject: str, names: tuple[str, ...]) -> None:
        super().__init__(
            operation, subject, f"the host namespace already has a link called {' or '.join(names)}", EEXIST
        )
        self.names = names


class NotCarriable(KernelError):
    """The namespace has something that cannot be carried into another one.

    Attributes:
        what: It, in words.
    """

    def __init__(self, what: str) -> None:
        super().__init__("carry", what, "it cannot be made again in another namespace", EOPNOTSUPP)
        self.what = what


class SandboxNotSynced(KernelError):
    """Some of what a sandbox lacked could not be brought into it; the rest has been.

    Attributes:
        failures: What, and why, in words.
    """

    def __init__(self, subject: str, failures: tuple[str, ...]) -> None:
        super().__init__("sync", subject, "; ".join(failures))
        self.failures = failures


@contextmanager
def attempt(operation: str, subject: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `KernelError` that says what was tried on what."""
    try:
        yield
    except OSError as exc:
        reason = exc.strerror or str(exc)
        if exc.filename is not None and str(exc.filename) != subject:
            reason += f": {exc.filename}"
        raise KernelError(operation, subject, reason, exc.errno) from exc
