# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's calls and the replies as records; pure. The wire's spelling of keys stays in this room."""
