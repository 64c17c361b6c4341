# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DHCP leases are renewed, in whatever order dockerd, the daemon and the CNI DHCP daemon are restarted."""
