# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plans an endpoint: the plugins' input, the CNI version and the attach mode; also for `cni-bridge explain`."""

from collections.abc import Collection
from dataclasses import replace

from cni_invoker import CniError, Runtime
from cnm_bridge.core.engine_facts import EngineRelease
from cnm_bridge.core.planning.attach_choice import STATIC, AttachRequest, choose_mode, depends_on_static
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment, without_unused_pools
from cnm_bridge.core.settings import AttachOption


async def plan_endpoint(
    wanted: PlanRequest,
    runtime: Runtime,
    *,
    default: AttachOption,
    release: EngineRelease | None,
) -> Plan:
    """Return the plan of an endpoint, with a list whose version all its plugins support.

    The plugin `static` is executed for its versions only if the attach mode depends on it.

    Args:
        wanted: What the plan is made for.
        runtime: Executes VERSION.
        default: The daemon's mode for endpoints without the option `cni.attach`.
        release: The engine's release, None if it is not known.

    Raises:
        CniError: The plugins have no version in common, or one is missing.
        BadOption, Refused: As `plan_attachment` and `choose_mode`.
    """
    wanted = without_unused_pools(wanted)
    plan = plan_attachment(wanted)
    plan = replace(plan, configuration=await runtime.negotiate(plan.configuration))
    request = AttachRequest(
        network=plan.configuration, options=wanted.options, default=default, release=release, has_pool=wanted.has_pool
    )
    static_versions = await _static_versions(runtime) if depends_on_static(request) else None
    return replace(plan, attach=choose_mode(request, static_versions))


async def _static_versions(runtime: Runtime) -> Collection[str] | None:
    """Return the CNI versions that the plugin `static` supports, None if there is no such plugin."""
    try:
        return (await runtime.version(STATIC)).supported
    except CniError:
        return None
