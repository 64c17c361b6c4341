# SPDX-License-Identifier: Apache-2.0
"""Network configuration lists: parsed, named, and found on disk."""
