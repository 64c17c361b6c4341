# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni_invoker beside libcni: both get the same random cases, and what they do is compared.

`python -m tests.differential --cases 1000 --seed 7` (`make fuzz CASES=1000 SEED=7`). The known classes of differences,
with their reasons, are in `differences.yaml`.
"""
