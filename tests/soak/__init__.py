# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The soak: random operations and random kills on a real Docker host, compared with a model of what must exist.

`python -m tests.soak --operations 1000 --seed 7` (`make soak N=1000 SEED=7`). A seed repeats the same operations and
kills, but not the machine's timing.
"""
