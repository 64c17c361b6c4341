# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The domain: networks and endpoints between Docker and CNI. Knows no HTTP, no netlink, no LevelDB."""

from cnm_bridge.lifecycle.audit import Audit
from cnm_bridge.lifecycle.binding import Binder
from cnm_bridge.lifecycle.certainty import Certainty
from cnm_bridge.lifecycle.collection import PluginGarbage
from cnm_bridge.lifecycle.contention import ContentionResolver
from cnm_bridge.lifecycle.endpoints import Endpoints
from cnm_bridge.lifecycle.left_behind import LeftBehind
from cnm_bridge.lifecycle.locks import KeyedLocks
from cnm_bridge.lifecycle.lost_networks import LostNetworks
from cnm_bridge.lifecycle.networks import Networks
from cnm_bridge.lifecycle.outside import ExternalConnectivity
from cnm_bridge.lifecycle.owed import OwedTearDowns
from cnm_bridge.lifecycle.owners import AddressOwners
from cnm_bridge.lifecycle.places import TearDownPlaces
from cnm_bridge.lifecycle.plugin_log import PluginLog
from cnm_bridge.lifecycle.port_claims import PortClaims
from cnm_bridge.lifecycle.publishing import Publishing
from cnm_bridge.lifecycle.rebuild import RebuildEndpoint
from cnm_bridge.lifecycle.reconcile import Reconcile
from cnm_bridge.lifecycle.remains import RemoveRemains
from cnm_bridge.lifecycle.settling import Settling
from cnm_bridge.lifecycle.status import Status
from cnm_bridge.lifecycle.teardown import TearDown
from cnm_bridge.lifecycle.unpublished import Unpublished
from cnm_bridge.lifecycle.usage import Usage

__all__ = [
    "AddressOwners",
    "Audit",
    "Binder",
    "Certainty",
    "ContentionResolver",
    "Endpoints",
    "ExternalConnectivity",
    "KeyedLocks",
    "LeftBehind",
    "LostNetworks",
    "Networks",
    "OwedTearDowns",
    "PluginGarbage",
    "PluginLog",
    "PortClaims",
    "Publishing",
    "RebuildEndpoint",
    "Reconcile",
    "RemoveRemains",
    "Settling",
    "Status",
    "TearDown",
    "TearDownPlaces",
    "Unpublished",
    "Usage",
]
