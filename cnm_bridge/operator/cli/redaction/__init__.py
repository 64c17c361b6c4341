# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes secrets from what `cni-bridge sysdump` collects."""
