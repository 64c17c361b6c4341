# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes a Docker network together with its network configuration list, and removes both."""
