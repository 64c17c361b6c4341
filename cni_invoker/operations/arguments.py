# SPDX-License-Identifier: Apache-2.0
"""Checks the types of what a verb is given, before anything runs."""

from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.inputs.attachment import Attachment
from cni_invoker.inputs.given import require_type
from cni_invoker.results.result import Result

__all__ = ["require_inputs", "require_network", "require_result"]


def require_network(network: NetworkConfigurationList) -> None:
    """Raise `TypeError` if this is not a network configuration list."""
    hints = {
        str: "ConfigurationDirectories(...).index().find(name) returns it",
        dict: "NetworkConfigurationList.from_document(document) returns it",
        Attachment: "the network comes first",
    }
    require_type(network, NetworkConfigurationList, "network", hints.get(type(network), ""))


def require_inputs(network: NetworkConfigurationList, attachment: Attachment) -> None:
    """Raise `TypeError` if one of these has another type."""
    require_network(network)
    require_type(attachment, Attachment, "attachment")


def require_result(result: Result | None, what: str) -> None:
    """Raise `TypeError` if this is neither a result nor None."""
    if result is not None:
        require_type(result, Result, what, "Result.from_document(document) returns it")
