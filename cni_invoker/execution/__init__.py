# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One execution of a plugin: its request, its process, its limits."""
