# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Commands of the operator, and the examination of a host. They ask the daemon."""
