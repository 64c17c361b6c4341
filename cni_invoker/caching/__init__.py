# SPDX-License-Identifier: Apache-2.0
"""A runtime that remembers its attachments, in memory or as libcni does."""
