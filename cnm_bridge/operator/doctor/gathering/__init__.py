# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the facts from the host; changes nothing. One module per subject."""
