# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: whether anything of a running daemon needs attention."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import click

from cni_bridge_spec import JsonObject, JsonValue, find_str, get_object, get_objects, get_str, get_strings
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.options.cni_options import list_name
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.commands.cleanup import AFTER_FAILURE
from cnm_bridge.operator.cli.containers import ask_engine
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.options import seconds
from cnm_bridge.operator.cli.output import SHORT, Prose, Shown, Table, count, shows

_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.6
"""An answer about thousands of endpoints takes the daemon a sixth of a second."""

_WITHOUT_LIST: Final = (("NETWORK WITHOUT A LIST", "name"), ("NO LIST IS CALLED", "configuration"))
_TEARDOWNS: Final = (
    *(("PENDING TEARDOWN", "endpointId"), ("NETWORK", "network"), ("ATTEMPTS", "attempts"), ("LAST ERROR", "error")),
)
_RELEASES: Final = (
    ("PENDING RELEASE", "address"),
    ("SECTION", "section"),
    ("ATTEMPTS", "attempts"),
    ("LAST ERROR", "error"),
)
_RUNNING: Final = (
    *(("PLUGIN RUNNING NOW", "plugin"), ("VERB", "verb"), ("CONTAINER ID", "containerId"), ("AGE", "age")),
)
_UNTRIED: Final = (("TEARDOWN UNDER WAY", "endpointId"), ("NETWORK", "network"))
_NOT_PUBLISHED: Final = (("PORTS NOT PUBLISHED", "container"), ("NETWORK", "network"), ("WHY", "notPublished"))
_ADVICE: Final = {
    _TEARDOWNS: AFTER_FAILURE,
    _NOT_PUBLISHED: "or make a network that can publish them the container's gateway (from Engine 28 on, gw-priority)",
}
"""What stands below a table."""

_POOLS: Final = (
    *(("ADDRESS POOL", "subnet"), ("SECTION", "section"), ("PART", "part"), ("GATEWAY", "gateway")),
    ("ADDRESSES", "addresses"),
)
"""What Docker has from the IPAM driver."""
_DHCP: Final = (("DHCP WITHOUT", "subject"), ("ERROR", "error"))

_FIRST_NETWORK: Final = "no networks yet; make one: cni-bridge network create blue --subnet 10.22.0.0/16"

_SLOW_S: Final = 10.0
"""The verdict mentions a plugin that runs longer."""

_ENGINE_LIMIT_S: Final = 2.0


@click.command(
    "status",
    cls=Command,
    examples=("status", "status --wait 30", "status --json"),
)
@asks_daemon("docker_host")
@click.option(
    "--wait",
    type=seconds,
    help="Wait until the daemon has compared its records with Docker and no teardown is pending; at most this long.",
)
@shows
def status(settings: Settings, *, wait: float | None) -> tuple[Shown, ExitStatus]:
    """Show whether anything of the running daemon needs attention.

    The first line says it. Tables show what does, the plugins that run now, and pools of the IPAM driver; `ls` shows
    containers and networks.
    """
    client = AdminClient(settings.admin_path)
    document = client.get("status")
    deadline, pause_s = time.monotonic() + (wait or 0), _PAUSE_S
    while wait is not None and _is_busy(document) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        document = client.get("status")
    document = _with_names(document, settings.docker_host)
    problems = (
        document["pendingTeardowns"],
        _without_list(document),
        _find_dhcp_problems(document, {}),
        get_objects(document, "pendingReleases"),
    )
    is_fine = not any(problems) and not (wait is not None and _is_busy(document))
    containers = _find_containers(document, settings.docker_host)
    return show_status(document, containers), ExitStatus.FINE if is_fine else ExitStatus.FINDINGS


def show_status(status: JsonObject, containers: Mapping[str, str]) -> Shown:
    """Return a verdict, and tables of what needs attention and what is under way.

    `containers`: endpoint → name of its container, as far as it is known.
    """
    networks = get_objects(status, "networks")
    labels = {get_str(n, "id"): find_str(n, "name") or get_str(n, "id")[:SHORT] for n in networks}
    endpoints = get_objects(status, "endpoints")
    on = {get_str(endpoint, "id"): labels.get(get_str(endpoint, "networkId")) for endpoint in endpoints}
    not_published: list[JsonObject] = [
        {
            **one,
            "container": containers.get(get_str(one, "id")) or get_str(one, "id")[:SHORT],
            "network": on[get_str(one, "id")],
        }
        for one in endpoints
        if find_str(one, "notPublished")
    ]
    pending: list[JsonObject] = [
        {**one, "network": on.get(get_str(one, "endpointId"))} for one in get_objects(status, "pendingTeardowns")
    ]
    untried: list[JsonObject] = [
        {"endpointId": one, "network": on.get(one)} for one in get_strings(status, "untriedTeardowns")
    ]
    tables = (
        (_RUNNING, [{**one, "age": f"{_age_s(one):.0f}s"} for one in get_objects(status, "runningPlugins")]),
        (_WITHOUT_LIST, _without_list(status)),
        (_TEARDOWNS, pending),
        (_RELEASES, get_objects(status, "pendingReleases")),
        (_UNTRIED, untried),
        (_NOT_PUBLISHED, not_published),
        (_DHCP, _find_dhcp_problems(status, containers)),
        (_POOLS, get_objects(status, "pools")),
    )
    parts: list[Table | Prose | str] = [_verdict(status)]
    for columns, rows in tables:
        if rows:
            parts.append(Table(columns=columns, rows=rows))
            parts += [_ADVICE[columns]] if columns in _ADVICE else []
    return Shown(document=status, parts=parts if networks else [*parts, _FIRST_NETWORK])


def _is_busy(status: JsonObject) -> bool:
    """Return whether a teardown is pending, tried or not, or may be: the first comparison with Docker has not ended."""
    teardowns = get_strings(status, "untriedTeardowns") or get_objects(status, "pendingTeardowns")
    return bool(teardowns) or (not _is_compared(status) and get_object(status, "engine")["isUp"] is not False)


def _is_compared(status: JsonObject) -> bool:
    return get_object(status, "engine")["rounds"] != 0


def _verdict(status: JsonObject) -> str:
    """Return one line: what needs attention, else what there is."""
    is_up = get_object(status, "engine")["isUp"]  # null right after the daemon's start
    not_published = sum(find_str(endpoint, "notPublished") is not None for endpoint in get_objects(status, "endpoints"))
    found = (
        (is_up is False, "the Docker Engine does not answer"),
        *(
            (number > 0, f"{count(number, noun)} {verb}".rstrip())
            for number, noun, verb in (
                (len(get_objects(status, "pendingTeardowns")), "teardown", "failed, and will be repeated"),
                (len(get_objects(status, "pendingReleases")), "release", "failed, and will be repeated"),
                (len(_without_list(status)), "network", "without a list: no container starts on it"),
                (not_published, "endpoint", "without published ports"),
                (len(_find_dhcp_problems(status, {})), "problem", "of DHCP"),
            )
        ),
    )
    problems = [text for applies, text in found if applies]
    problems += (
        f"{get_str(running, 'plugin')} {get_str(running, 'verb')} has been running for {_age_s(running):.0f} s"
        for running in get_objects(status, "runningPlugins")
        if _age_s(running) > _SLOW_S
    )
    if problems:
        return f"attention: {'; '.join(problems)}"
    networks, endpoints = (count(len(get_objects(status, f"{noun}s")), noun) for noun in ("network", "endpoint"))
    untried = len(get_strings(status, "untriedTeardowns"))
    under_way = f", {count(untried, 'teardown')} under way" if untried else ""
    engine = "the Docker Engine answers" if is_up and _is_compared(status) else "the daemon has just started"
    return f"fine: {engine}; {networks}, {endpoints}{under_way}"


def _age_s(plugin: JsonObject) -> float:
    return float(str(plugin["ageS"]))


def _find_dhcp_problems(status: JsonObject, containers: Mapping[str, str]) -> list[JsonObject]:
    """Return the daemons that do not answer, and the endpoints without their lease: `subject` and `error`."""
    found: list[JsonObject] = []
    for daemon in get_objects(status, "dhcp"):
        if find_str(daemon, "error"):
            found.append({"subject": f"daemon at {get_str(daemon, 'socket')}", "error": get_str(daemon, "error")})
        found += (
            {"subject": f"lease of {containers.get(one) or one[:SHORT]}", "error": get_str(lost, "error")}
            for lost in get_objects(daemon, "lost")
            for one in [get_str(lost, "endpointId")]
        )
    return found


def _with_names(document: JsonObject, docker_host: str) -> JsonObject:
    """Return a status whose networks have the name that the engine knows, and the list that its compose name chooses.

    The daemon learns a name in a comparison, and takes a compose name for the first container. Without an answer of the
    engine the document stays as it is.
    """
    lists = get_strings(document, "lists")
    networks = get_objects(document, "networks")
    unclear = [network for network in networks if not find_str(network, "name") or not _has_list(network, lists)]
    if not unclear or get_object(document, "engine")["isUp"] is not True:
        return document
    try:
        known = asyncio.run(_ask_engine(docker_host, [get_str(one, "id") for one in unclear]))
    except EngineUnavailable:
        return document
    named: list[JsonValue] = []
    for network in networks:
        found = known.get(get_str(network, "id"))
        names = {} if found is None else {"name": found.name, "configuration": list_name(found, lists)}
        named.append({**network, **names})
    return {**document, "networks": named}


def _find_containers(document: JsonObject, docker_host: str) -> Mapping[str, str]:
    """Return endpoint → name of its container, if a table names any and the engine answers."""
    named = any(find_str(one, "notPublished") for one in get_objects(document, "endpoints")) or any(
        get_objects(daemon, "lost") for daemon in get_objects(document, "dhcp")
    )
    if not named or get_object(document, "engine")["isUp"] is not True:
        return {}
    try:
        containers, _ = ask_engine(docker_host, _ENGINE_LIMIT_S)
    except EngineUnavailable:
        return {}
    return {network.endpoint_id: container.name for container in containers for network in container.networks}


async def _ask_engine(host: str, ids: Iterable[str]) -> Mapping[str, EngineNetwork]:
    from cnm_bridge.system.engine import Engine  # noqa: PLC0415 - slow, and rarely needed

    engine = Engine(host, _ENGINE_LIMIT_S)
    return {one: network for one in ids if (network := await engine.find_network(one)) is not None}


def _has_list(network: JsonObject, lists: Collection[str]) -> bool:
    return find_str(network, "configuration") in lists


def _without_list(status: JsonObject) -> list[JsonObject]:
    """Return the networks on which no container starts, because the list of their name does not exist."""
    lists = get_strings(status, "lists")
    return [network for network in get_objects(status, "networks") if not _has_list(network, lists)]
