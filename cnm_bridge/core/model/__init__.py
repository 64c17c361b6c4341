# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Shared by all rooms: the names of links and namespaces, and the typed endpoint. Pure."""
