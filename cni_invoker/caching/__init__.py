# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A runtime that remembers its attachments, in memory or as libcni does."""
