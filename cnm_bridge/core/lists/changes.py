# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Changes of a list: other plugins, and the arguments in `args.cni` of a plugin (CNI CONVENTIONS); pure."""

from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonObject, find_object
from cni_invoker import NetworkConfigurationList

_ADDRESSES: Final = "ips"


def with_plugins(network: NetworkConfigurationList, documents: Sequence[JsonObject]) -> NetworkConfigurationList:
    """Return a list with other plugins, by their documents."""
    document = {**network.document, "plugins": list(documents)}
    return NetworkConfigurationList.from_document(document, source=network.source)


def cni_args_of(plugin: JsonObject) -> JsonObject:
    """Return `args.cni` of a plugin's document; empty if it has none."""
    return find_object(find_object(plugin, "args") or {}, "cni") or {}


def with_cni_args(plugin: JsonObject, values: JsonObject) -> JsonObject:
    """Return a plugin's document with values added to `args.cni`."""
    return {**plugin, "args": {**(find_object(plugin, "args") or {}), "cni": {**cni_args_of(plugin), **values}}}


def without_address_args(plugin: JsonObject) -> JsonObject:
    """Return a plugin's document without requests for addresses in `args.cni`."""
    others = {key: value for key, value in cni_args_of(plugin).items() if key != _ADDRESSES}
    if len(others) == len(cni_args_of(plugin)):
        return plugin
    return {**plugin, "args": {**(find_object(plugin, "args") or {}), "cni": others}}
