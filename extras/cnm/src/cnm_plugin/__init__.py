# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI plugin `cnm`: it drives a Docker network driver, so that other runtimes can use it; see docs/cnm.md.

It starts anew for each call, and most of its time is imports. So it imports nothing of the daemon and no `http.client`,
and its records are named tuples: making a data class takes a millisecond, and importing that module eight.
"""

__version__ = "0.1.0"
