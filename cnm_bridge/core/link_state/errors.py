# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The errors of operations on namespaces and links.

```
KernelError               the kernel refused a step
├── NamespaceMissing      the path is not a live network namespace
├── NamespaceRefused      the step would have changed a namespace that it must not touch
├── LinkMissing           the namespace has no link of that name
├── NameTaken             the host namespace already has a link of that name
├── NotCarriable          the namespace has something that cannot be created again in another one
└── SandboxNotSynced      some of what a sandbox lacked could not be added
```
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENODEV, ENOENT, EOPNOTSUPP, EPERM


class KernelError(Exception):
    """The kernel refused a step; reads as `cannot <operation> <subject>: <reason>`.

    Attributes:
        operation: The operation, e.g. `move out`.
        subject: Its object, e.g. `link eth0 of /run/cni-bridge/netns/4f2a`.
        reason: The reason in words, from the kernel if it gave one.
        errno: The kernel's error number, None if there is none.
    """

    def __init__(self, operation: str, subject: str, reason: str, errno: int | None = None) -> None:
        super().__init__(f"cannot {operation} {subject}: {reason}")
        self.operation = operation
        self.subject = subject
        self.reason = reason
        self.errno = errno


class NamespaceMissing(KernelError):
    """The path is not a live network namespace."""

    def __init__(self, operation: str, subject: str) -> None:
        super().__init__(operation, subject, "no network namespace is mounted there", ENOENT)


class NamespaceRefused(KernelError):
    """The step would have changed a namespace that it must not touch; nothing was done."""

    def __init__(self, operation: str, subject: str, reason: str) -> None:
        super().__init__(operation, subject, reason, EPERM)


class LinkMissing(KernelError):
    """The namespace has no link of that name."""

    def __init__(self, operation: str, subject: str, existing: tuple[str, ...]) -> None:
        super().__init__(operation, subject, f"no such link; existing links: {', '.join(existing) or 'none'}", ENODEV)
        self.existing = existing


class NameTaken(KernelError):
    """The host namespace already has a link of that name."""

    def __init__(self, operation: str, subject: str, names: tuple[str, ...]) -> None:
        super().__init__(
            operation, subject, f"the host namespace already has a link called {' or '.join(names)}", EEXIST
        )
        self.names = names


class NotCarriable(KernelError):
    """The namespace has something that cannot be created again in another one."""

    def __init__(self, what: str) -> None:
        super().__init__("carry", what, "it cannot be made again in another namespace", EOPNOTSUPP)
        self.what = what


class SandboxNotSynced(KernelError):
    """Some of what a sandbox lacked could not be added; the rest has been.

    Attributes:
        failures: For each item its description and the reason.
    """

    def __init__(self, subject: str, failures: tuple[str, ...]) -> None:
        super().__init__("sync", subject, "; ".join(failures))
        self.failures = failures


@contextmanager
def attempt(operation: str, subject: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `KernelError` with the operation and its subject."""
    try:
        yield
    except OSError as exc:
        reason = exc.strerror or str(exc)
        if exc.filename is not None and str(exc.filename) != subject:
            reason += f": {exc.filename}"
        raise KernelError(operation, subject, reason, exc.errno) from exc
