# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins learn about the container at Join. Where a link is made is tested in tests/kernel and tests/system."""

from dataclasses import replace

import pytest

from cni_bridge_spec import get_objects
from cni_bridge_state import EndpointRecord, IdentityRequest
from cnm_bridge.core.engine_facts import EngineContainer
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.attach.place_finder import Place
from tests.records import endpoint

KNOWN = Place(obstacle=None, container=EngineContainer(id="ab" * 32, name="web", image="busybox", labels={}))
UNKNOWN = Place(obstacle=None, unknown="the Docker Engine is booting")


def requesting(request: IdentityRequest | None) -> EndpointRecord:
    """Return an endpoint with this value of `cni.identity`."""
    record = endpoint("e" * 64)
    return replace(record, attachment=replace(record.attachment, identity=request))


def test_plugins_receive_the_identity() -> None:
    """It is added to CNI_ARGS, if it is requested."""
    identified = KNOWN.identify(requesting(IdentityRequest()))
    assert dict(identified.attachment.args)["DOCKER_CONTAINER_NAME"] == "web"
    plain = requesting(None)
    assert KNOWN.identify(plain) is plain


def test_a_container_that_is_not_known() -> None:
    """It starts without an identity, unless one is required: then the error says why it is not known."""
    record = requesting(IdentityRequest())
    assert UNKNOWN.identify(record) is record
    required = requesting(IdentityRequest(is_required=True))
    with pytest.raises(Refused, match=r"cni\.identity-required: .* is not known: the Docker Engine is booting"):
        UNKNOWN.identify(required)
    assert KNOWN.identify(required) != required


def test_the_template_of_a_network() -> None:
    """What it says of the container is in `args` of the plugins."""
    place = replace(KNOWN, template={"runtime": {"container": "{name}"}})
    identified = place.identify(requesting(IdentityRequest()))
    (plugin,) = get_objects(identified.attachment.configuration, "plugins")
    assert plugin["args"] == {"runtime": {"container": "web"}}
