# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the objects that CNI plugins create for a container: reservations, rules, chains, links."""

from cnm_bridge.driver.recovery.artifacts.artifact import PluginArtifact
from cnm_bridge.driver.recovery.artifacts.hashed_names import (
    IFB_KIND,
    chain_names,
    hashed_names,
    ifb_name,
    is_chain_name,
    is_ifb_name,
    names_for_cache_files,
)
from cnm_bridge.driver.recovery.artifacts.reservations import (
    Reservations,
    data_directories,
    find_reservations,
    remove_reservation,
    remove_unwritten,
)
from cnm_bridge.driver.recovery.artifacts.rules import EmptyChain, SavedRules, find_rules, parse_rules, read_rules

__all__ = [
    "IFB_KIND",
    "EmptyChain",
    "PluginArtifact",
    "Reservations",
    "SavedRules",
    "chain_names",
    "data_directories",
    "find_reservations",
    "find_rules",
    "hashed_names",
    "ifb_name",
    "is_chain_name",
    "is_ifb_name",
    "names_for_cache_files",
    "parse_rules",
    "read_rules",
    "remove_reservation",
    "remove_unwritten",
]
