# SPDX-License-Identifier: Apache-2.0
"""What a caller gives: attachments, capability arguments, and the rules for their values."""
