# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The admin socket: versioned HTTP and JSON for the operator's commands. Docker never uses it.

The documents are those of `spec/admin`. Answers with an entry for each endpoint are built in a thread, or in slices, so
that they delay none of Docker's calls.
"""
