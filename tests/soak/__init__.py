# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The soak: random operations and random kills on a real Docker host, compared with a model of what must exist.

`python -m tests.soak --operations 1000 --seed 7` (`make soak N=1000 SEED=7`). A seed gives the same operations and the
same kills again; what the machine does in which moment it does not repeat.
"""
