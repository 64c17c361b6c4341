# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waits for a link in its sandbox and adds what the sandbox lacks."""
