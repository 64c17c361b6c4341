# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge explain`: shows what would be done for a container, without doing it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from cni_bridge_state import AttachmentId, RequestedInterface
from cni_invoker import (
    Attachment,
    CniError,
    ConfigurationDirectories,
    Limits,
    NetworkConfigurationList,
    Runtime,
    installed_plugins,
    run_preflight,
)
from cni_invoker.advanced import requests_for_add
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.endpoint import pin_path, staging_path
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import EngineUnavailable, Refused, UnknownName
from cnm_bridge.core.lists.changes import with_reservation
from cnm_bridge.core.lists.dhcp import attachment_with_identifier
from cnm_bridge.core.lists.guard import ALLOW
from cnm_bridge.core.options.cni_options import Options, merge_options, parse_options, with_spelling
from cnm_bridge.core.options.docker_options import split_unknown
from cnm_bridge.core.planning.explanation import Explanation
from cnm_bridge.core.planning.plan import PlanRequest, plan_attachment
from cnm_bridge.core.settings import AttachOption, Settings
from cnm_bridge.driver.networks.plan_endpoint import plan_endpoint
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.daemon_settings import finds_settings
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.options import parse_pairs
from cnm_bridge.operator.cli.output import Prose, Shown, shows
from cnm_bridge.system.engine import Engine

_ENDPOINT_ID: Final = "ENDPOINT-ID"
"""Stands for the ID that Docker will choose."""


@click.command(
    "explain",
    cls=Command,
    examples=("explain blue", "explain --option cni.ips=10.22.0.9 blue", "explain --plugins blue"),
)
@click.option(
    "-o",
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    help="Option of the network or the endpoint. Repeatable.",
)
@click.option("--mac-address", metavar="MAC", help="As given to docker run.")
@click.option("--plugins", is_flag=True, help="Show also what each plugin receives.")
@click.argument("network")
@finds_settings
@shows
def explain(
    settings: Settings, *, options: tuple[str, ...], mac_address: str | None, plugins: bool, network: str
) -> tuple[Shown, ExitStatus]:
    """Show what a container on NETWORK would get; of the plugins, only VERSION is run.

    NETWORK is a Docker network of this driver, whose options are the defaults, else a CNI network configuration. --json
    has what each plugin receives, too.

    No daemon is needed; if one runs at the --admin-socket, its own settings are used, changed by the options given
    here.
    """
    requested = RequestedInterface(mac=mac_address)
    chosen = parse_pairs(options)
    try:
        found = asyncio.run(_explain(settings, network, chosen, requested))
    except (CniError, OSError) as exc:
        raise Refused(str(exc)) from exc
    details = found.render_details(with_plugins=plugins)
    sentences = Prose(lines=[*found.sentences()])
    shown = Shown(document=found.render_json(), parts=[sentences, details] if details else [sentences])
    return shown, ExitStatus.FINDINGS if found.problems else ExitStatus.FINE


async def _explain(settings: Settings, name: str, given: dict[str, str], requested: RequestedInterface) -> Explanation:
    engine = Engine(settings.docker_host, settings.engine_timeout_s)
    given = with_spelling(given, settings.cni_arg_names)
    network = await find_explained_network(name, given, settings.cni_conf_dirs, engine, settings.driver_name)
    if network.doubt is not None:
        echo(f"cni-bridge: {network.doubt}", err=True)
    docker = network.docker
    pools = () if docker is None else docker.pools
    internal = docker is not None and docker.internal
    wanted = PlanRequest(
        network=network.configuration, options=network.options, requested=requested, pools=pools, internal=internal
    )
    runtime = Runtime(settings.cni_bin_dirs, Limits(), in_process=installed_plugins())
    ignored = (f"option {option} is not known to this version, and is ignored" for option in network.options.unknown)
    preflight = await run_preflight(runtime, plan_attachment(wanted).configuration)
    warnings = (*preflight.all_warnings, *ignored)
    try:
        version = await engine.version()
    except EngineUnavailable:
        version = None
    if version is None and (network.options.attach or settings.attach) is not AttachOption.MOVE:
        echo(
            "cni-bridge: the attach mode may be another one: it depends on the version of the Docker Engine, which is "
            "not known here",
            err=True,
        )
    plan = await plan_endpoint(wanted, runtime, default=settings.attach, version=version)
    if plan.attach.mode.has_reservation:
        plan = replace(plan, configuration=with_reservation(plan.configuration, None))
    path = pin_path if plan.attach.mode.in_sandbox else staging_path
    attachment_id = AttachmentId(_ENDPOINT_ID)
    if plan.options.client_id is not None:
        attachment_id = attachment_with_identifier(plan.configuration.name, plan.options.client_id)
    attachment = Attachment(
        container_id=attachment_id,
        ifname=plan.ifname,
        netns=str(path(settings.run_dir, attachment_id)),
        args=plan.args,
        capability_args=plan.capability_args,
    )
    paths = {plugin.type: runtime.find_plugin(plugin.type) for plugin in plan.configuration.plugins}
    requests = requests_for_add(plan.configuration, attachment, settings.cni_bin_dirs)
    docker_network = None if docker is None else docker.name
    return Explanation(
        plan=plan,
        requests=requests,
        paths=paths,
        docker_network=docker_network,
        problems=preflight.all_problems,
        warnings=warnings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedNetwork:
    """A resolved name.

    Attributes:
        configuration: The CNI configuration on disk, or the one that the network has brought.
        options: The options of the Docker network, overridden by the given ones.
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

    Raises:
        BadOption: An option is unknown, or its value is invalid.
        UnknownName: There is no Docker network and no CNI configuration with that name.
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
    further = {ALLOW: known.pop(ALLOW)} if ours and ALLOW in known else {}  # in addition to the network's
    options = replace(parse_options(merge_options(ours.options if ours else {}, known), further), unknown=unknown)
    index = ConfigurationDirectories(conf_dirs).index()
    wanted = options.configuration or (ours.name if ours else name)
    try:
        configuration = index.find(wanted)
    except ConfigurationNotFound as exc:
        if options.configuration is not None:
            raise
        if ours is not None:
            raise Refused(f"Docker network {ours.name} was made without -o cni.network, and there is {exc}") from exc
        if exc.own:
            raise UnknownName(str(exc)) from exc
        other = f"Docker network {name} is of driver {docker.driver}, not of {driver}" if docker else None
        raise UnknownName(f"{exc}; {other or doubt or f'and there is no Docker network {name!r}'}") from exc
    return ExplainedNetwork(configuration=configuration, options=options, docker=ours, doubt=doubt)
