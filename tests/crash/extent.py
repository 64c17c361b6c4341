# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How much is tried: everything takes hours, so a part of it is the default."""

import os
from typing import Final

_EXTENT: Final = os.environ.get("CNI_BRIDGE_CRASH")

FULL: Final = _EXTENT == "full"
"""Whether everything is tried."""
WIDE: Final = FULL or _EXTENT == "wide"
"""Whether every call in every attach mode is tried, with some pairs of boundaries."""
