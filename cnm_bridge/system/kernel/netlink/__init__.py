# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""rtnetlink: messages, the socket, and one module for each kind of object."""
