# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attach mode *move*: plugins run in a staging namespace, and libnetwork moves the link into the sandbox."""
