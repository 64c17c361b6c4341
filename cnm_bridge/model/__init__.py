# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the rooms share: identities, names and the attachment of an endpoint. Pure."""
