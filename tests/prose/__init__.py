# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plain English, checked: `python -m tests.prose` reports phrases that a native engineer would not write."""
