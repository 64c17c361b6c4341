# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The verbs of the plugin `cnm`."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from cni_invoker.documents.jsontypes import JsonError, JsonObject, find_str, get_bool, get_str
from cni_plugin import Call, CallError, ErrorCode, Plugin
from cnm_plugin.driver import Driver, Refusal, find_driver
from cnm_plugin.link import Routes, is_gone, place, show, take_out
from cnm_plugin.messages import (
    Joined,
    Settings,
    chosen_interface,
    create_endpoint,
    create_network,
    identity,
    render_result,
)
from cnm_plugin.records import DATA_DIR, NetworkRecords

if TYPE_CHECKING:
    from cni_invoker.documents.results import Result

__all__ = ["main", "says_unknown"]

_UNKNOWN: Final = re.compile(
    r"\b(?:no such|no|unknown|find) (?:network |endpoint ?id )?(?:endpoint|network|ID)\b"
    r"|\b(?:endpoint|network|ID)[\"')]*:?(?: (?:with|id|ID|is|was|does|could))*"
    r" (?:not found|not exist|not be found|doesn't exist|unknown)"
)
"""What drivers say about an endpoint or a network that they do not have: there is no code for it. A program or a file
may be not found as well, so the words must be about the endpoint."""

_SHORTEST_ID: Final = 7

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _Network:
    """The network of a call: its driver and its records."""

    def __init__(self, call: Call) -> None:
        self.settings = Settings.of_call(call)
        self.id = identity("cnm", call.name)
        self.records = NetworkRecords(Path(find_str(call.config, "dataDir") or DATA_DIR), self.id)

    def driver(self) -> Driver:
        return Driver(self.settings.driver, find_driver(self.settings.driver))

    def ids(self, endpoint_id: str) -> JsonObject:
        return {"NetworkID": self.id, "EndpointID": endpoint_id}


def _mark(endpoint_id: str) -> str:
    return f"cnm-{endpoint_id}"


def add(call: Call) -> JsonObject:
    """ADD: what libnetwork does when a container is started."""
    network = _Network(call)
    endpoint_id = identity(call.name, call.container_id, call.ifname)
    driver = network.driver()
    if network.records.endpoint(endpoint_id) is not None:
        raise CallError(ErrorCode.INTERNAL, f"{call.ifname} of {call.container_id} is attached already; DEL it first")
    assigned = call.ipam_add() if call.ipam_type else None
    record: JsonObject = {"containerId": call.container_id, "ifName": call.ifname, "netns": call.netns}
    with network.records.locked():
        network.records.put_endpoint(endpoint_id, record)
        try:
            _ensure_network(network, driver, assigned)
        except BaseException:
            network.records.remove_endpoint(endpoint_id)
            raise
    try:
        return _attach(call, network, driver, endpoint_id, assigned)
    except BaseException as exc:
        try:
            _detach(network, driver, endpoint_id)
        except CallError as second:  # the record stays for DEL, and so does the address, which the driver still has
            call.ipam_reserved = False
            exc.add_note(f"it is not undone: {second.msg}")
        raise


def _ensure_network(network: _Network, driver: Driver, assigned: "Result | None") -> None:
    """Create the network in the driver unless it has been created; the caller holds the lock."""
    boot = _BOOT_ID.read_text("ascii").strip()
    settings = network.settings
    wanted: JsonObject = {"driver": driver.name, "options": settings.options, "internal": settings.internal}
    record: JsonObject = {**wanted, "boot": boot}
    known = network.records.network()
    if known is not None and any(known.get(key) != value for key, value in wanted.items()):
        raise CallError(
            ErrorCode.INVALID_CONFIGURATION,
            "driver or options of the network have changed while containers use it",
            "DEL all of its containers first, or give it another name",
        )
    if known is not None and get_bool(known, "created") and known.get("boot") == boot:
        return
    driver.activate()
    network.records.put_network(record)
    try:
        driver.call("CreateNetwork", create_network(network.id, settings, assigned))
    except CallError as exc:
        if not isinstance(exc, Refusal):  # whether it was created is not known: the record stays
            raise
        if known is None:
            network.records.remove_network()
            raise
        # It was created before a reboot, or in an ADD that was interrupted: the driver may still have it.
        _log(f"{exc.msg}; it may have the network already")
    network.records.put_network({**record, "created": True})


def _attach(call: Call, network: _Network, driver: Driver, endpoint_id: str, assigned: "Result | None") -> JsonObject:
    settings, ids = network.settings, network.ids(endpoint_id)
    created = driver.call("CreateEndpoint", create_endpoint(ids, settings, assigned))
    reply = driver.call("Join", {**ids, "SandboxKey": call.netns, "Options": settings.labels})
    try:
        interface = chosen_interface(created, assigned, settings.mac)
        joined = Joined.from_reply(reply)
    except JsonError as exc:
        raise CallError(ErrorCode.INTERNAL, f"the answer of driver {driver.name} is invalid: {exc}") from exc
    routes = _routes(joined, assigned)
    record: JsonObject = {
        **(network.records.endpoint(endpoint_id) or {}),
        "link": joined.link,
        "external": bool(joined.gateways),
    }
    network.records.put_endpoint(endpoint_id, record)
    if joined.link:
        shown, routes = place(call, joined.link, mark=_mark(endpoint_id), interface=interface, routes=routes)
        interface["MacAddress"] = interface["MacAddress"] or find_str(shown, "address") or ""
    if joined.gateways:
        driver.call("ProgramExternalConnectivity", {**ids, "Options": settings.labels}, optional=True)
    driver.call("EndpointOperInfo", ids)
    return render_result(call, interface, routes, joined.gateways, assigned)


def _routes(joined: Joined, assigned: "Result | None") -> Routes:
    """Return all routes of the container: the driver's, and those of the IPAM plugin that the driver does not have."""
    routes = list(joined.routes)
    routes += [("0.0.0.0/0" if family == 4 else "::/0", gateway) for family, gateway in joined.gateways.items()]  # noqa: PLR2004
    if assigned is not None:
        gateways = {ip.address.version: str(ip.gateway) for ip in assigned.ips if ip.gateway}
        taken = {dst for dst, _ in routes}
        routes += [
            (str(route.dst), str(route.gw) if route.gw else gateways.get(route.dst.version))
            for route in assigned.routes
            if str(route.dst) not in taken
        ]
    return routes


def delete(call: Call) -> None:
    """DEL: what libnetwork does when a container ends. What was never made needs no driver."""
    network = _Network(call)
    endpoint_id = identity(call.name, call.container_id, call.ifname)
    is_last = network.records.network() is not None and not network.records.endpoints()
    if network.records.endpoint(endpoint_id) is not None or is_last:
        _detach(network, network.driver(), endpoint_id)
    if call.ipam_type:
        call.ipam_delete()


def _detach(network: _Network, driver: Driver, endpoint_id: str) -> None:
    """Undo an attachment, however far it came; then the network if it was the last."""
    record = network.records.endpoint(endpoint_id)
    ids = network.ids(endpoint_id)
    if record is not None:
        link = find_str(record, "link")
        if get_bool(record, "external"):
            _log_failure_of(lambda: driver.call("RevokeExternalConnectivity", ids, optional=True))
        _log_failure_of(lambda: driver.call("Leave", ids))
        if link:
            _log_failure_of(lambda: take_out(link, _mark(endpoint_id), get_str(record, "netns")))
        try:
            driver.call("DeleteEndpoint", ids)
        except Refusal as exc:
            is_left = not link or not is_gone(link, _mark(endpoint_id), get_str(record, "netns"))
            if is_left and not says_unknown(exc.reason, ids):
                raise
            _log(f"{exc.msg}; there is nothing left to delete")
    if record is None and network.records.endpoints():
        return
    with network.records.locked():
        network.records.remove_endpoint(endpoint_id)
        if network.records.network() is not None and not network.records.endpoints():
            _log_failure_of(lambda: driver.call("DeleteNetwork", {"NetworkID": network.id}))
            network.records.remove_network()


def says_unknown(reason: str, ids: JsonObject) -> bool:
    """Return whether a driver's refusal says that it does not have the endpoint, or its network.

    Args:
        reason: The driver's words.
        ids: `NetworkID` and `EndpointID`; a driver may shorten them.
    """
    text = reason.lower()
    for identifier in ids.values():
        text = re.sub(rf"\b{str(identifier)[:_SHORTEST_ID]}[0-9a-f]*\b", "ID", text)
    return _UNKNOWN.search(text) is not None


def _log_failure_of(step: Callable[[], object]) -> None:
    """Carry out a step whose failure libnetwork only logs; a driver that does not answer is an error all the same."""
    try:
        step()
    except CallError as exc:
        if exc.code == ErrorCode.TRY_AGAIN_LATER:
            raise
        _log(f"{exc.msg}{f': {exc.details}' if exc.details else ''}")


def check(call: Call) -> None:
    """CHECK: the driver has the endpoint, and the link has its addresses."""
    network = _Network(call)
    endpoint_id = identity(call.name, call.container_id, call.ifname)
    if network.records.endpoint(endpoint_id) is None:
        raise CallError(ErrorCode.UNKNOWN_CONTAINER, f"{call.ifname} of {call.container_id} is not attached")
    network.driver().call("EndpointOperInfo", network.ids(endpoint_id))
    present = show(call)
    expected = () if call.prev_result is None else call.prev_result.addresses_of(call.ifname)
    if missing := [str(address) for address in expected if str(address) not in present]:
        raise CallError(ErrorCode.INTERNAL, f"{call.ifname} has lost {', '.join(missing)}")
    if call.ipam_type:
        call.ipam_pass_on()


def gc(call: Call) -> None:
    """GC: DEL of every endpoint of the network that is not valid."""
    network = _Network(call)
    valid = {identity(call.name, one.container_id, one.ifname) for one in call.valid_attachments}
    errors = []
    for endpoint_id in network.records.endpoints():
        if endpoint_id not in valid:
            try:
                _detach(network, network.driver(), endpoint_id)
            except CallError as exc:
                errors.append(exc.msg)
    if call.ipam_type:
        call.ipam_pass_on()
    if errors:
        raise CallError(ErrorCode.INTERNAL, f"{len(errors)} endpoints are not deleted", "; ".join(errors))


def status(call: Call) -> None:
    """STATUS: the driver answers."""
    try:
        _Network(call).driver().activate()
    except CallError as exc:
        if exc.code == ErrorCode.INVALID_CONFIGURATION:
            raise
        raise CallError(ErrorCode.NOT_AVAILABLE, exc.msg, exc.details) from exc
    if call.ipam_type:
        call.ipam_pass_on()


def _log(message: str) -> None:
    sys.stderr.write(f"cnm: {message}\n")


def main() -> NoReturn:
    """Act as the plugin."""
    Plugin(
        add=add,
        delete=delete,
        check=check,
        gc=gc,
        status=status,
        versions=("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"),
    ).run("cnm: a CNI plugin that drives a Docker network driver")
