# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Containers of a connectivity test whose process has ended are found, and no others."""

import subprocess
import sys

from cnm_bridge.operator.connectivity.pair import find_left_behind, image_of, new_names


def test_containers_of_a_process_that_has_ended() -> None:
    """Also if its ID is another program's by now."""
    with subprocess.Popen(("sleep", "60")) as other:
        left = [f"cni-bridge-test-{other.pid}-0011aabb-{end}" for end in "ba"]
        assert find_left_behind([*left, "web", "cni-bridge-test-mine", "cni-bridge-test-7-a"]) == tuple(left[::-1])
        other.kill()
    assert image_of(left[0]) == f"cni-bridge-test:{other.pid}-0011aabb"


def test_containers_of_a_test_that_runs() -> None:
    """They are its own business."""
    program = (
        f"import time; from {new_names.__module__} import new_names; print(*new_names(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen((sys.executable, "-c", program, "cnm_bridge"), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first, second, image = running.stdout.readline().split()
        assert find_left_behind([first, second]) == ()
        running.kill()
    assert find_left_behind([first, second]) == (first, second)
    assert image_of(first) == image
