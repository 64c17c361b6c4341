# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the attach mode of an endpoint, for the daemon and for `cni-bridge explain`."""

from collections.abc import Collection

from cni_invoker import CniError, NetworkConfigurationList, Runtime
from cnm_bridge.core.engine_facts import DNS_BEFORE_START, EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.attach_choice import (
    STATIC,
    AttachChoice,
    AttachRequest,
    choose_mode,
    depends_on_static,
)
from cnm_bridge.core.planning.options.cni_options import Options
from cnm_bridge.core.settings import AttachOption

__all__ = ["choose_attach_mode"]


async def choose_attach_mode(
    runtime: Runtime,
    network: NetworkConfigurationList,
    options: Options,
    *,
    has_pool: bool,
    default: AttachOption,
    release: EngineRelease | None,
) -> AttachChoice:
    """Return the attach mode of an endpoint; `static` is executed for its versions only if the mode depends on it.

    Args:
        runtime: Executes VERSION.
        network: The negotiated list.
        options: The options of the network and the endpoint.
        has_pool: Whether Docker's own IPAM chooses addresses.
        default: The daemon's mode for endpoints without the option `cni.attach`.
        release: The engine's release, None if it is not known.

    Raises:
        BadOption, Refused: As `choose_mode`.
    """
    if options.dns is not None and release is not None and release < DNS_BEFORE_START:
        raise Refused(
            f"cni.dns={options.dns} is not possible: Docker Engine {release} does not call the driver between writing "
            f"resolv.conf and starting the container; {DNS_BEFORE_START} and newer do"
        )
    request = AttachRequest(
        option=options.attach or default,
        is_default=options.attach is None,
        has_ifname=options.ifname is not None,
        has_pool=has_pool,
        identity=options.identity,
    )
    static_versions = await _static_versions(runtime) if depends_on_static(request, network) else None
    return choose_mode(request, network, release, static_versions=static_versions)


async def _static_versions(runtime: Runtime) -> Collection[str] | None:
    """Return the CNI versions that the plugin `static` supports, None if there is no such plugin."""
    try:
        return (await runtime.version(STATIC)).supported
    except CniError:
        return None
