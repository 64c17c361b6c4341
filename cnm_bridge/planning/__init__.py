# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decisions, without effects: what plugins receive, what Docker is answered, what a sandbox needs. Pure."""
