# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Effects: the kernel, Docker's API, processes, locks and the log."""
