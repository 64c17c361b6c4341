# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes the calls about endpoints: create, join, publish ports, leave, delete."""
