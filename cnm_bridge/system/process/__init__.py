# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's own process: its sockets, its run directory, its limits, and what systemd passes to it."""
