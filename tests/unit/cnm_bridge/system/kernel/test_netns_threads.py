# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Threads of the kernel room."""

import pytest

from cni_invoker import waiting
from cnm_bridge.core.errors import KernelError
from cnm_bridge.system.kernel import Kernel


async def test_a_process_without_a_free_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker receives the reason, not an internal error."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiting, "start_new_thread", refuse)
    with pytest.raises(KernelError, match="cannot start a thread: no further thread can be started"):
        await Kernel(reply_limit_s=5.0).gone_sandboxes([])
