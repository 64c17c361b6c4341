# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker networks, and the CNI network configuration lists that they use."""
