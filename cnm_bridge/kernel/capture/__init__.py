# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The snapshot of a staging namespace, and what cannot be a part of it."""
