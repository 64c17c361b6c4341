# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon: a Docker network driver that runs CNI plugins. See docs/architecture.md for its rooms."""

__version__ = "0.1.0"
