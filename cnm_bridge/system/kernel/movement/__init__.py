# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Moves links between the staging namespace, the host namespace and the sandbox."""
