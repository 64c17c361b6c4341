# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The crash matrix: the daemon is killed between any two of its effects; afterwards nothing may be left or lost."""
