# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Attaches endpoints to sandboxes and detaches them: the protocol `Attacher`, and the modules of each attach mode."""
