# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of all IpamDriver calls.

Source: moby `daemon/libnetwork/ipams/remote/remote.go`, `api/api.go`; `network.go`, ipamAllocateVersion.
"""

from typing import Final

from cni_bridge_spec import JsonObject
from cnm_bridge.core.wire import OWN_SPACES
from cnm_bridge.core.wire.ipam import (
    parse_release_address,
    parse_release_pool,
    parse_request_address,
    parse_request_pool,
    render_address_reply,
    render_pool_reply,
)
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.server.api.callers import done, with_caller
from cnm_bridge.server.api.rpc import Answer, Method
from cnm_bridge.system.kernel import Kernel

ERROR_KEY: Final = "Error"

_CAPABILITIES: Final[JsonObject] = {"RequiresMACAddress": False, "RequiresRequestReplay": False}
"""A MAC would be chosen for the links of all drivers, and Docker's ipvlan refuses one (docs/decisions/)."""

_ADDRESS_SPACES: Final[JsonObject] = dict(
    zip(("LocalDefaultAddressSpace", "GlobalDefaultAddressSpace"), OWN_SPACES, strict=True)
)


def ipam_driver(ipam: IpamService, kernel: Kernel) -> tuple[Method, ...]:
    """Return all IpamDriver calls, implemented by the given objects."""

    def method(name: str, schema: str | None, answer: Answer | JsonObject) -> Method:
        return Method(name=f"IpamDriver.{name}", schema=schema, answer=answer, error_key=ERROR_KEY)

    # fmt: off
    return (
        method("GetCapabilities", None, _CAPABILITIES),
        method("GetDefaultAddressSpaces", None, _ADDRESS_SPACES),
        method("RequestPool", "ipam/RequestPool",
               with_caller(kernel, parse_request_pool, ipam.request_pool, render_pool_reply)),
        method("ReleasePool", "ipam/ReleasePool", done(parse_release_pool, ipam.release_pool)),
        method("RequestAddress", "ipam/RequestAddress",
               with_caller(kernel, parse_request_address, ipam.request_address, render_address_reply)),
        method("ReleaseAddress", "ipam/ReleaseAddress", done(parse_release_address, ipam.release_address)),
    )
    # fmt: on
