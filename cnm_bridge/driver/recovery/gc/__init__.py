# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugins' GC: when it runs, and which attachments are valid."""
