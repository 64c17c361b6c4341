# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's link: as plugins will make it, as Docker learns it, and what its sandbox needs beyond that; pure."""
