# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How a link gets into a sandbox and out again: the protocol `Attacher`, and the modules of each attach mode."""
