# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The calls about endpoints: create, join, publish ports, leave, delete. Only `api` and the daemon import this room."""
