# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The same `docker run` on a network of Docker's own bridge and on one of ours, compared from inside.

`cases.py` has the commands, `side.py` the networks, `subject.py` and `inside.py` what is read of a container, and
`roles.py` replaces the values that must differ. `differences.py` reads the table of `docs/docker-bridge.md`: each
difference is in it, and each row of it is a difference that still exists.
"""
