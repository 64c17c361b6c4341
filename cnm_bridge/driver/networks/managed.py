# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Managed networks: those that the operator lists in the configuration file, and that the daemon creates in Docker.

A *locked* one has its CNI configuration for itself: other networks of that configuration are refused, and so are
containers that would replace its options. Docker ignores
the driver's refusal to delete a network (moby `libnetwork/network.go`, delete), so a locked one that was removed is
created again.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from cni_bridge_state import NetworkId
from cnm_bridge.core.engine_facts import EngineNetwork
from cnm_bridge.core.errors import BadOption, EngineUnavailable, Refused
from cnm_bridge.core.options.cni_options import CONFIGURATION, different_options, merge_options
from cnm_bridge.core.settings import ManagedNetwork
from cnm_bridge.system.engine import Engine

log = structlog.get_logger()

_LABEL: Final = "io.github.cni-bridge.managed"


class ManagedNetworks:
    """Creates the managed networks that Docker does not have, and protects the locked ones.

    Args:
        wanted: The managed networks.
        driver: This driver's name in Docker.
    """

    def __init__(self, wanted: Iterable[ManagedNetwork], engine: Engine, driver: str) -> None:
        self._wanted = tuple(wanted)
        self._engine = engine
        self._driver = driver
        self._creating: ManagedNetwork | None = None
        self._ids: dict[NetworkId, ManagedNetwork] = {}
        self._logged: dict[str, str] = {}
        self.missing = asyncio.Event()
        """Set when a network is missing, and `create_missing` should be called soon."""

    async def create_missing(self) -> None:
        """Create the networks that Docker does not have.

        Whatever prevents it is logged once, and tried again by the next call: Docker does not answer, or a network of
        that name exists with another driver, configuration or option.
        """
        ids: dict[NetworkId, ManagedNetwork] = {}
        for wanted in self._wanted:
            try:
                found = await self._engine.find_network_named(wanted.name) or await self._create(wanted)
            except EngineUnavailable as exc:
                self._log_once(wanted, str(exc))
                continue
            if found is None:
                self._log_once(wanted, "Docker has just created it, and does not know it any more")
                continue
            difference = _find_difference(found, wanted, self._driver)
            if difference is None:
                ids[NetworkId(found.id)] = wanted
                self._logged.pop(wanted.name, None)
            else:
                self._log_once(
                    wanted,
                    f"Docker has a network {wanted.name} with {difference}; remove it (docker network rm "
                    f"{wanted.name}), or change the managed network",
                )
        self._ids = ids

    def refuse_other(self, configuration: str | None, options: Mapping[str, str]) -> None:
        """Refuse a network that is being created if its configuration belongs to a locked network.

        Args:
            configuration: The network's configuration, None if it is that of its own name, which is not known yet.
            options: Its options.

        Raises:
            Refused: It is not the locked network itself.
        """
        owner = self._find_locked(configuration)
        if owner is not None and not (self._creating is owner and dict(options) == _options_of(owner)):
            raise _locked(owner)

    def refuse_container(self, configuration: str, options: Mapping[str, str]) -> None:
        """Refuse a container that would use the configuration of a locked network from another network.

        Args:
            configuration: The configuration that the container's network, or the container itself, names.
            options: The options of the container's network.

        Raises:
            Refused: It is not on the locked network.
        """
        owner = self._find_locked(configuration)
        if owner is not None and dict(options) != _options_of(owner):
            raise _locked(owner)

    def refuse_override(self, network: Mapping[str, str], container: Mapping[str, str]) -> None:
        """Refuse a container that has other values for options of its network, if that is locked; it may add options.

        Args:
            network: The options of the container's network.
            container: The options of the container on it.

        Raises:
            BadOption: It would replace an option of a locked network, or has one twice.
        """
        owner = next((one for one in self._wanted if one.locked and _options_of(one) == network), None)
        if owner is None:
            return
        given, merged = merge_options(network, {}), merge_options(network, container)
        for option in given:
            if merged[option] != given[option]:
                raise BadOption(
                    option,
                    f"network {owner.name} is locked by the configuration of cni-bridge, so a container cannot "
                    "replace its options; leave it out",
                )

    def refuse_name(self, name: str) -> None:
        """Refuse a network that has the configuration of its own name, if that belongs to a locked network.

        Raises:
            Refused: It is not the locked network itself.
        """
        owner = self._find_locked(name)
        if owner is not None and owner.name != name:
            raise _locked(owner)

    def refuse_pool(self, section: str) -> None:
        """Refuse a pool of Docker's IPAM driver whose section is the configuration of a locked network.

        Such a network has no pool: all its addresses are for its own containers.

        Raises:
            Refused: It is.
        """
        owner = self._find_locked(section)
        if owner is not None:
            raise _locked(owner)

    def note_deleted(self, network_id: NetworkId) -> None:
        """Note that Docker deletes a network; a locked one will be created again.

        Raises:
            Refused: It is locked. Docker logs this text, and deletes the network nevertheless.
        """
        deleted = self._ids.pop(network_id, None)
        if deleted is not None and deleted.locked:
            self.missing.set()
            raise Refused(
                f"network {deleted.name} is locked by the configuration of cni-bridge, which creates it again; to "
                "remove it, remove it from the configuration first"
            )

    async def _create(self, wanted: ManagedNetwork) -> EngineNetwork | None:
        self._creating = wanted
        try:
            await self._engine.create_network(
                {
                    "Name": wanted.name,
                    "Driver": self._driver,
                    "IPAM": {"Driver": "null"},
                    "Internal": wanted.internal,
                    "Options": _options_of(wanted),
                    "Labels": {_LABEL: "true"},
                    "CheckDuplicate": True,
                }
            )
        finally:
            self._creating = None
        log.info("network.managed_created", name=wanted.name, configuration=wanted.configuration)
        return await self._engine.find_network_named(wanted.name)

    def _find_locked(self, configuration: str | None) -> ManagedNetwork | None:
        return next((one for one in self._wanted if one.locked and one.configuration == configuration), None)

    def _log_once(self, wanted: ManagedNetwork, reason: str) -> None:
        if self._logged.get(wanted.name) != reason:
            self._logged[wanted.name] = reason
            log.warning("network.not_managed", name=wanted.name, reason=reason)


def _options_of(wanted: ManagedNetwork) -> dict[str, str]:
    return {CONFIGURATION: wanted.configuration, **dict(wanted.options)}


def _find_difference(found: EngineNetwork, wanted: ManagedNetwork, driver: str) -> str | None:
    if found.driver != driver:
        return f"driver {found.driver}"
    if dict(found.options) != _options_of(wanted):
        return f"other values of {', '.join(different_options(found.options, _options_of(wanted)))}"
    if found.internal != wanted.internal:
        return f"internal = {str(found.internal).lower()}"
    return None


def _locked(owner: ManagedNetwork) -> Refused:
    return Refused(
        f"CNI configuration {owner.configuration} is locked by the configuration of cni-bridge: only network "
        f"{owner.name} may use it; attach containers to that network (--network {owner.name})"
    )
