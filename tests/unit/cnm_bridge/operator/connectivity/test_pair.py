# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The containers of a test: of which busybox they are made, and when they have gone."""

from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity import pair
from cnm_bridge.operator.connectivity.pair import DockerCommand, Pair, busybox_tar


@pytest.mark.parametrize("loader", ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-aarch64.so.1", "/lib64/ld64.so.2"])
def test_a_busybox_that_needs_shared_libraries(tmp_path: Path, loader: str) -> None:
    """It could not run in an image of its own; ld64.so is the loader of ppc64el and s390x."""
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF" + bytes(600) + loader.encode() + b"\0")
    with pytest.raises(Refused, match="needs shared libraries; install the package busybox-static"):
        busybox_tar(busybox)


_DOCKER = """#!/bin/sh
shift 2
case $1 in
inspect) echo endpoint-of-$4 ;;
esac
"""


@pytest.mark.parametrize(("after", "left"), [(2, ""), (9, "the teardown of an endpoint has not completed in 0.05 s")])
def test_a_teardown_that_docker_does_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, left: str
) -> None:
    """The daemon is asked until it knows neither endpoint; a DEL that fails or hangs is left."""
    docker = tmp_path / "docker"
    docker.write_text(_DOCKER, "utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(pair, "busybox_tar", lambda _: b"")  # not every host has a busybox
    monkeypatch.setattr(pair, "_GONE_S", 0.05)
    monkeypatch.setattr(pair, "_PAUSE_S", 0.02)
    asked: list[frozenset[str]] = []

    def is_torn_down(endpoints: frozenset[str]) -> bool:
        asked.append(endpoints)
        return len(asked) == after

    made = Pair(DockerCommand("unix:///none"), "blue", publishes=False, is_torn_down=is_torn_down)
    assert made.start(tmp_path).succeeded
    assert made.remove() == left
    assert set(asked) == {frozenset(f"endpoint-of-{name}" for name in made.names)}
