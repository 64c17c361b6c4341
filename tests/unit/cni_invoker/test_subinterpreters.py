# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Interpreters of one process each have a copy of the library, and share a cache as processes do (Python 3.14)."""

import threading
from pathlib import Path
from typing import Final

import pytest

interpreters = pytest.importorskip("concurrent.interpreters", reason="Python 3.14 has interpreters in the library")

PLUGIN: Final = """#!/bin/sh
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0"}'
"""
PROGRAM: Final = """
from pathlib import Path
from cni_invoker import Attachment, NetworkConfigurationList
from cni_invoker.sync import CachedRuntime

directory = Path({directory!r})
document = {{"cniVersion": "1.0.0", "name": "blue", "plugins": [{{"type": "quick"}}]}}
network = NetworkConfigurationList.from_document(document)
runtime = CachedRuntime.open(directory, directory / "cache", lock_dir=directory / "locks")
for number in range(5):
    attachment = Attachment(container_id=f"{name}-{{number}}", ifname="eth0", netns="/run/netns/x")
    runtime.add(network, attachment)
    runtime.delete(network, attachment)
(directory / "{name}.done").touch()
"""


def test_interpreters_at_once(tmp_path: Path) -> None:
    """Four of them add and delete; nothing is left in the cache."""
    plugin = tmp_path / "quick"
    plugin.write_text(PLUGIN, "ascii")
    plugin.chmod(0o755)
    names = ("a", "b", "c", "d")

    def work(name: str) -> None:
        interpreter = interpreters.create()
        try:
            interpreter.exec(PROGRAM.format(directory=str(tmp_path), name=name))
        finally:
            interpreter.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {file.stem for file in tmp_path.glob("*.done")} == set(names)
    assert not list((tmp_path / "cache/results").iterdir())
