# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No lost DEL: a `CachedRuntime` is killed and hindered in each way that a seed chooses, and nothing stays unrecorded.

`make interrupted RUNS=1000 SEED=7` needs root, for a small disk.
"""
