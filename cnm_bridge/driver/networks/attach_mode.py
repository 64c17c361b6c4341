# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the attach mode of an endpoint, for the daemon and for `cni-bridge explain`."""

from collections.abc import Collection

from cni_bridge_state import AttachMode
from cni_invoker import CniError, NetworkConfigurationList, Runtime
from cnm_bridge.core.engine_facts import DNS_BEFORE_START, SANDBOX_AT_JOIN, EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.attach_choice import (
    STATIC,
    AttachChoice,
    AttachRequest,
    choose_mode,
    find_sandbox_mode,
)
from cnm_bridge.core.planning.options.cni_options import Options
from cnm_bridge.core.settings import AttachOption

__all__ = ["choose_attach_mode"]


async def choose_attach_mode(
    runtime: Runtime,
    network: NetworkConfigurationList,
    options: Options,
    *,
    default: AttachOption,
    release: EngineRelease | None,
) -> AttachChoice:
    """Return the attach mode of an endpoint; `static` is executed for its versions only if the mode may need it.

    Args:
        runtime: Executes VERSION.
        network: The negotiated list.
        options: The options of the network and the endpoint.
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
    request = AttachRequest(option=options.attach or default, is_default=options.attach is None)
    static_versions = await _static_versions(runtime) if request.may_reserve else None
    choice = choose_mode(
        request, network, release, static_versions=static_versions, has_ifname=options.ifname is not None
    )
    if choice.mode is AttachMode.MOVE and options.identity is not None and options.identity.is_required:
        other = find_sandbox_mode(network, release, await _static_versions(runtime))
        remedy = f"use Docker Engine {SANDBOX_AT_JOIN} or newer" if other is None else f"choose cni.attach={other}"
        raise Refused(
            "cni.identity-required: plugins cannot know the container in mode move, in which they run before Docker "
            f"says which it is; the mode is move because {choice.reason}; {remedy}, or leave out cni.identity-required"
        )
    return choice


async def _static_versions(runtime: Runtime) -> Collection[str] | None:
    """Return the CNI versions that the plugin `static` supports, None if there is no such plugin."""
    try:
        return (await runtime.version(STATIC)).supported
    except CniError:
        return None
