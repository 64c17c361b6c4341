# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Takes the snapshot of a staging namespace, and refuses what a snapshot cannot hold."""
