# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a network configuration list has, and what is known of its plugins; pure."""
