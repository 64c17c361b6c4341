# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A damaged LevelDB: noticed, read as far as it is good, and set aside."""
