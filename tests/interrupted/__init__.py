# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No lost DEL: cni_invoker is killed and hindered in each way that a seed chooses, and nothing may stay unrecorded.

`python -m tests.interrupted --runs 1000 --seed 7` (`make interrupted RUNS=1000 SEED=7`) needs root, for a small disk.
"""
