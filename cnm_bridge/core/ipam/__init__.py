# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker is given as its IPAM driver: sections, pools and addresses; pure."""
