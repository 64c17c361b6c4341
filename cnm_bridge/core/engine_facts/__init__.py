# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the Docker Engine reports about itself, containers and networks, as records. Pure.

A document of another shape is a `JsonError`, and a text in it that is not an address a `ValueError`.
"""
