# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a caller gives: attachments, capability arguments, and the rules for their values."""
