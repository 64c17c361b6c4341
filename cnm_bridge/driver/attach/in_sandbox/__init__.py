# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The modes *hybrid* and *direct*: plugins run in the container's sandbox, at Join."""
