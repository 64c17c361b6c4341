# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Resolves the name that `cni-bridge explain` receives: a Docker network or a CNI configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cni_invoker import ConfigurationDirectories, NetworkConfigurationList
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.engine_facts import EngineNetwork
from cnm_bridge.core.errors import EngineUnavailable, Refused
from cnm_bridge.core.planning.options.cni_options import Options, merge_options, parse_options
from cnm_bridge.core.planning.options.docker_options import split_unknown
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.system.engine import Engine

__all__ = ["ExplainedNetwork", "UnknownNetwork", "find_explained_network"]


class UnknownNetwork(Refused):
    """Neither Docker nor the directories of configurations have the name."""

    exit_status = ExitStatus.USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedNetwork:
    """A resolved name.

    Attributes:
        configuration: The CNI configuration on disk, or the one that the network has brought.
        options: The options of the Docker network, overridden by the given ones.
        docker: The Docker network, None if there is none with that name.
        doubt: The reason why it is unknown whether the Docker network exists, None if it is known.
    """

    configuration: NetworkConfigurationList
    options: Options
    docker: EngineNetwork | None
    doubt: str | None


async def find_explained_network(
    name: str, given: Mapping[str, str], conf_dirs: Sequence[Path], engine: Engine, driver: str
) -> ExplainedNetwork:
    """Resolve a name; a Docker network takes precedence over a CNI configuration with the same name.

    Args:
        name: The name, or a Docker network ID.
        given: The given options.
        conf_dirs: Directories of CNI configurations.
        engine: The engine, which knows Docker's networks; ignored if it does not answer.
        driver: The name of this driver in Docker.

    Raises:
        BadOption: An option is unknown, or its value is invalid.
        UnknownNetwork: There is no Docker network and no CNI configuration with that name.
        Refused: The Docker network has the name of no configuration.
        CniError: The configuration that the options name does not exist.
    """
    known, unknown = split_unknown(given)
    parse_options(known)  # reports errors in the given options, before they are merged
    docker, doubt = None, None
    try:
        docker = await engine.find_network(name)
    except EngineUnavailable as exc:
        doubt = f"whether there is a Docker network {name!r} is not known: {exc}"
    ours = docker if docker is not None and docker.driver == driver else None
    options = replace(parse_options(merge_options(ours.options if ours else {}, known)), unknown=unknown)
    index = ConfigurationDirectories(conf_dirs).index()
    if options.inline is not None:
        return ExplainedNetwork(configuration=options.inline, options=options, docker=ours, doubt=doubt)
    wanted = options.configuration or (ours.name if ours else name)
    try:
        configuration = index.find(wanted)
    except ConfigurationNotFound as exc:
        if options.configuration is not None:
            raise
        if ours is not None:
            raise Refused(f"Docker network {ours.name} was made without -o cni.network, and there is {exc}") from exc
        other = f"Docker network {name} is of driver {docker.driver}, not of {driver}" if docker else None
        raise UnknownNetwork(f"{exc}; {other or doubt or f'and there is no Docker network {name!r}'}") from exc
    return ExplainedNetwork(configuration=configuration, options=options, docker=ours, doubt=doubt)
