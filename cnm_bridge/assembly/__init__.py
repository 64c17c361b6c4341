# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: makes all objects of the daemon and connects them."""

from cnm_bridge.assembly.assemble import Daemon, assemble

__all__ = ["Daemon", "assemble"]
