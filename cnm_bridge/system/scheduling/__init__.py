# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks, retries and pauses, for any kind of key. Does not know networks or endpoints."""
