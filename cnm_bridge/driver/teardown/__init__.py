# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tears endpoints down, repeats failed teardowns, and lets new endpoints wait for them."""
