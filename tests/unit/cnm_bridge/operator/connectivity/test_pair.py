# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The containers of a test: of which busybox they are made, and when they have gone."""

from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity.pair import busybox_tar


@pytest.mark.parametrize("loader", ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-aarch64.so.1", "/lib64/ld64.so.2"])
def test_a_busybox_that_needs_shared_libraries(tmp_path: Path, loader: str) -> None:
    """It could not run in an image of its own; ld64.so is the loader of ppc64el and s390x."""
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF" + bytes(600) + loader.encode() + b"\0")
    with pytest.raises(Refused, match="needs shared libraries; install the package busybox-static"):
        busybox_tar(busybox)
