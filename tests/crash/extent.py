# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How much is tried: everything takes some twenty minutes, so a part of it is the default."""

import os
from typing import Final

__all__ = ["FULL"]

FULL: Final = os.environ.get("CNI_BRIDGE_CRASH") == "full"
"""Whether everything is tried."""
