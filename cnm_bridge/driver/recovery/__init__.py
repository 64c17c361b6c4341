# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the records with the engine, the kernel and the plugins, and repairs the differences."""
