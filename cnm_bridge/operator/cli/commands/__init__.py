# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The commands: their options, help and exit status. Each module is imported when a command of it is used."""
