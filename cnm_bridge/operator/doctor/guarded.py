# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Guarded networks: what keeps their containers from names, and what lets them out.

The command `cni-egress status` knows what the kernel has; here it becomes findings.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, get_int, get_objects, get_str, get_strings
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.lists.guard import is_guard, is_guarded
from cnm_bridge.core.lists.plugins import bridges
from cnm_bridge.operator.doctor.facts import Facts, Finding, GuardFacts, error, warning
from cnm_bridge.operator.egress import GUARD_RECORDS, EgressFailed, ask_egress

_START: Final = "systemctl enable --now cni-egress"
_SUBJECT: Final = "guarded networks"
_ADDRESS: Final = re.compile(r"\[|[0-9.]+(/|:|$)|[0-9a-fA-F]*:[0-9a-fA-F]*:|host:")
"""How an entry begins that needs no daemon; every other one is a name, or a set that may have names."""
_SHORT: Final = 12


async def gather_guard(lists: Iterable[NetworkConfigurationList]) -> GuardFacts | None:
    """Return what is known about guarded networks; None if no list is guarded, and the plugin has never run."""
    if not any(map(is_guarded, lists)) and not GUARD_RECORDS.exists():
        return None
    try:
        status = as_object(await asyncio.to_thread(ask_egress, "status"), "the status")
    except (EgressFailed, JsonError) as exc:
        return GuardFacts(silence=str(exc))
    return GuardFacts(status=status)


def check_guarded(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with guarded networks."""
    for container, others in {one.container: one.ways_out for one in facts.endpoints if one.ways_out}.items():
        yield error(
            "guarded-way-out",
            f"container {container}",
            f"it is on a guarded network, and on {' and '.join(others)}, which {'is' if len(others) == 1 else 'are'} "
            "neither guarded nor internal: it reaches everything there",
            fix=_disconnect(container, others),
            advice="cni.egress.other-networks=allow, an option of the guarded network, if that is meant",
        )
    for unjoined in facts.unjoined:
        container, networks = unjoined.container, " and ".join(unjoined.networks)
        yield warning(
            "not-joined",
            f"container {container}",
            f"Docker lists {networks} for it, which it is not on: `docker network connect` was refused; if that is "
            "refused again when the container is started again, it does not start",
            fix=f"docker stop {container} && {_disconnect(container, unjoined.networks)} && docker start {container}",
            advice="nothing has to be done if it was started with --rm",
        )
    guard = facts.guard
    if guard is None:
        return
    if guard.status is None:
        yield error("guarded-unknown", _SUBJECT, f"what is in force cannot be found out: {guard.silence}")
        return
    try:
        yield from _check_status(facts, guard.status)
    except JsonError as exc:
        yield warning("guarded-unknown", _SUBJECT, f"cni-egress has another version: {exc}")


def _disconnect(container: str, networks: Iterable[str]) -> str:
    return " && ".join(f"docker network disconnect {network} {container}" for network in networks)


def _check_status(facts: Facts, status: JsonObject) -> Iterator[Finding]:
    named = [configured.network.name for configured in facts.networks if _needs_daemon(configured.network)]
    if status["isRunning"] is not True and (named or status["needsDaemon"] is True):
        of = f" of {', '.join(named)}" if named else ""
        yield error(
            "guarded-no-daemon",
            _SUBJECT,
            f"cni-egress does not run: no names resolve for the containers{of}, and no new ones start",
            fix=_START,
        )
    missing = get_objects(status, "missing")
    if missing:
        first = f"{get_str(missing[0], 'what')} of {get_str(missing[0], 'containerId')[:_SHORT]}"
        yield error(
            "guarded-incomplete",
            _SUBJECT,
            f"the kernel has not all that protects {len(missing)} of {get_int(status, 'attachments')} guarded "
            f"containers: {first} is missing; another program has removed it",
            fix="systemctl restart cni-egress" if status["isRunning"] is True else _START,
        )
    for conflict in get_strings(status, "conflicts"):
        yield warning(
            "guarded-mark",
            _SUBJECT,
            f"{conflict}, which has the bit of packets that guarded containers may send",
            advice='give the plugin egress another bit in all lists, such as "mark": "0x20000000"',
        )
    yield from _check_bridges(facts, frozenset(get_strings(status, "guarded")))


def _check_bridges(facts: Facts, guarded: frozenset[str]) -> Iterator[Finding]:
    """Yield the Docker networks that are not guarded, and whose bridge is."""
    lists = {configured.network.name: configured.network for configured in facts.networks}
    for docker in facts.engine.networks:
        found = lists.get(docker.configuration)
        if found is None or docker.is_guarded or is_guarded(found):
            continue
        for bridge in guarded.intersection(bridges(found)):
            yield error(
                "guarded-bridge",
                f"Docker network {docker.name}",
                f"it is not guarded, but its bridge {bridge} is, because of a container that another network has or "
                "had: its own containers reach nothing beyond the bridge",
                advice="give each guarded network a list with a bridge of its own. The guard ends with the bridge: "
                f"stop all containers on it, then ip link del {bridge} && cni-egress sweep",
            )


def _needs_daemon(network: NetworkConfigurationList) -> bool:
    """Return whether a list is guarded, and allows names."""
    guards = [plugin.document for plugin in network.plugins if is_guard(plugin.document)]
    try:
        entries = [entry for one in guards for entry in (get_strings(one, "allow") if "allow" in one else ())]
    except JsonError:  # a finding of its own: the plugin refuses it
        return False
    return any(not _ADDRESS.match(entry) for entry in entries) or any(one.get("audit") is True for one in guards)
