# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which addresses are requested, and from which ranges plugins give them; pure."""
