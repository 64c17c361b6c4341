# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What has no record: it is reported as an orphan, or removed as a leftover if it is certainly ours."""
