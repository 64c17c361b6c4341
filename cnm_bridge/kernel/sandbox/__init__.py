# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A link in its sandbox: waited for, and given what it lacks."""
