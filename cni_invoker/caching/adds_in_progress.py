# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tracks the attachments that a runtime is adding.

So none is added twice at once, and a concurrent GC does not delete them as stale.
"""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from cni_invoker.errors import AttachmentExists
from cni_invoker.inputs.attachment import AttachmentKey

__all__ = ["AddsInProgress"]


class AddsInProgress:
    """The attachments that the tasks of one runtime are adding, in any thread."""

    def __init__(self) -> None:
        self._running: set[tuple[str, AttachmentKey]] = set()
        self._observed: list[set[tuple[str, AttachmentKey]]] = []
        self._mutex = threading.Lock()

    @contextmanager
    def adding(self, network: str, key: AttachmentKey) -> Iterator[None]:
        """Count an attachment as being added while the body runs.

        Raises:
            AttachmentExists: Another task is adding it; the body has not run.
        """
        identity = (network, key)
        with self._mutex:
            if identity in self._running:
                raise AttachmentExists(network, key.container_id, key.ifname)
            for observed in self._observed:
                observed.add(identity)
            self._running.add(identity)
        try:
            yield
        finally:
            with self._mutex:
                self._running.remove(identity)

    @contextmanager
    def observed(self) -> Iterator[Collection[tuple[str, AttachmentKey]]]:
        """Give the network and key of each attachment that is being added when the body begins, or while it runs."""
        with self._mutex:
            observed = set(self._running)
            self._observed.append(observed)
        try:
            yield observed
        finally:
            with self._mutex:
                # by identity: two observers may have equal sets
                self._observed = [other for other in self._observed if other is not observed]
