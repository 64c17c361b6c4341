# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The life of an endpoint: create, join, publish, leave, delete."""
