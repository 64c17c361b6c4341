# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's IPAM driver: pools and addresses of any Docker network, from a CNI IPAM plugin."""
