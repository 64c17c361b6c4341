# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks, retries and pauses. Knows nothing of networks."""
