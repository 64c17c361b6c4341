# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the CNI version and the attach mode of a plan, for the daemon and for `cni-bridge explain`."""

from collections.abc import Collection
from dataclasses import replace

from cni_invoker import CniError, Runtime
from cnm_bridge.core.engine_facts import EngineRelease
from cnm_bridge.core.planning.attach_choice import STATIC, AttachRequest, choose_mode, depends_on_static
from cnm_bridge.core.planning.plan import Plan, with_attach
from cnm_bridge.core.settings import AttachOption

__all__ = ["with_attach_mode"]


async def with_attach_mode(
    plan: Plan, runtime: Runtime, *, default: AttachOption, release: EngineRelease | None, mac: str | None = None
) -> Plan:
    """Return a plan with a list whose version all plugins support, and the attach mode.

    The plugin `static` is executed for its versions only if the mode depends on it.

    Args:
        plan: A plan that has neither.
        runtime: Executes VERSION.
        default: The daemon's mode for endpoints without the option `cni.attach`.
        release: The engine's release, None if it is not known.
        mac: See `with_attach`.

    Raises:
        CniError: The plugins have no version in common, or one is missing.
        BadOption, Refused: As `choose_mode`.
    """
    plan = replace(plan, configuration=await runtime.negotiate(plan.configuration))
    request = AttachRequest(
        network=plan.configuration, options=plan.options, default=default, release=release, has_pool=plan.has_pool
    )
    static_versions = await _static_versions(runtime) if depends_on_static(request) else None
    return with_attach(plan, choose_mode(request, static_versions), mac)


async def _static_versions(runtime: Runtime) -> Collection[str] | None:
    """Return the CNI versions that the plugin `static` supports, None if there is no such plugin."""
    try:
        return (await runtime.version(STATIC)).supported
    except CniError:
        return None
