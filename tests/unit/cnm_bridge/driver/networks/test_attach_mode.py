# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The choice of an attach mode asks `static` for its versions, and names a mode in which the container is known."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, IdentityKind, IdentityRequest
from cni_invoker import Limits, NetworkConfigurationList, Runtime
from cnm_bridge.core.engine_facts import EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.options.cni_options import Options
from cnm_bridge.core.settings import AttachOption
from cnm_bridge.driver.networks.attach_mode import choose_attach_mode
from tests.plugins import FakePlugins

OLD, NEW = EngineRelease(27, 5), EngineRelease(28, 5)
REQUIRED = IdentityRequest(kind=IdentityKind.DOCKER, is_required=True)


async def choose(
    tmp_path: Path, option: AttachOption, plugin: str, release: EngineRelease, identity: IdentityRequest
) -> AttachChoice:
    """Choose the mode for a network with this option, whose list has one plugin with host-local."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("static")
    document: JsonObject = {
        "cniVersion": "1.0.0",
        "name": "blue",
        "plugins": [{"type": plugin, "ipam": {"type": "host-local"}}],
    }
    return await choose_attach_mode(
        Runtime([plugins.directory], Limits()),
        NetworkConfigurationList.from_document(document),
        Options(attach=option, identity=identity),
        default=AttachOption.AUTO,
        release=release,
    )


@pytest.mark.parametrize(
    ("option", "plugin", "release", "remedy"),
    [
        (AttachOption.MOVE, "bridge", NEW, "choose cni.attach=hybrid, or leave out cni.identity-required"),
        (AttachOption.AUTO, "calico", NEW, "choose cni.attach=direct, or leave out cni.identity-required"),
        (AttachOption.AUTO, "bridge", OLD, "use Docker Engine 28 or newer, or leave out cni.identity-required"),
    ],
)
async def test_a_required_identity_in_mode_move(
    tmp_path: Path, option: AttachOption, plugin: str, release: EngineRelease, remedy: str
) -> None:
    """The error names a mode that is possible."""
    with pytest.raises(Refused) as refused:
        await choose(tmp_path, option, plugin, release, REQUIRED)
    assert str(refused.value).endswith(remedy)


@pytest.mark.parametrize(("option", "plugin"), [(AttachOption.HYBRID, "bridge"), (AttachOption.DIRECT, "calico")])
async def test_the_mode_that_the_error_names(tmp_path: Path, option: AttachOption, plugin: str) -> None:
    """It is possible."""
    choice = await choose(tmp_path, option, plugin, NEW, REQUIRED)
    assert choice.mode is AttachMode(option.value)
