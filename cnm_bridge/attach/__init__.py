# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The ways of attaching an endpoint: one protocol, and one module for each way."""
