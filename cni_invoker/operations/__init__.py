# SPDX-License-Identifier: Apache-2.0
"""CNI's operations on whole lists of plugins."""
