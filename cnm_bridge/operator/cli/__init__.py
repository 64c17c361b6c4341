# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge`. Imports the daemon only in `serve`, so that the other commands start fast."""
