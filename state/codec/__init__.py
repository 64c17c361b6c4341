# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between records, stored values, and the documents of an export; pure."""

from cni_bridge_state.codec.documents import document_of, value_of, value_of_stored
from cni_bridge_state.codec.endpoint import as_stored, parse_endpoint, render_endpoint
from cni_bridge_state.codec.network import parse_network, render_network

__all__ = [
    "as_stored",
    "document_of",
    "parse_endpoint",
    "parse_network",
    "render_endpoint",
    "render_network",
    "value_of",
    "value_of_stored",
]
