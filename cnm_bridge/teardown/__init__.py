# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tears endpoints down: the one undo, its queue, and the waits of new endpoints for it."""
