# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is read from an endpoint's record."""

from dataclasses import replace
from pathlib import Path

import pytest

from cnm_bridge.model.endpoint import Endpoint
from spec import JsonObject
from state import AttachmentId, AttachmentRecord, EndpointId, EndpointRecord, NetworkId, Phase, RequestedInterface

CONFIGURATION: JsonObject = {"cniVersion": "0.4.0", "name": "lan", "plugins": [{"type": "bridge"}]}
RECORD = EndpointRecord(
    id=EndpointId("e" * 64),
    network_id=NetworkId("a" * 64),
    phase=Phase.PENDING,
    boot_id="0c1f",
    internal=False,
    requested=RequestedInterface(),
    attachment=AttachmentRecord(
        id=AttachmentId("0123456789abcdef"),
        ifname="eth0",
        netns="/run/cni-bridge/netns/0123456789abcdef",
        configuration=CONFIGURATION,
        cni_version="0.3.1",
        args=(("IgnoreUnknown", "1"),),
        capability_args={},
    ),
)


def test_names_come_from_the_attachment() -> None:
    """CNI, the links and the staging namespace never see Docker's endpoint ID."""
    endpoint = Endpoint(RECORD)
    assert endpoint.attachment.container_id == "0123456789abcdef"
    assert (endpoint.host_link, endpoint.altname) == ("cnib0123456789a", "cni-bridge-0123456789abcdef")
    assert endpoint.staging == Path("/run/cni-bridge/netns/0123456789abcdef")
    assert endpoint.sandbox is None
    assert Endpoint(replace(RECORD, sandbox_key="/run/docker/netns/1")).sandbox == Path("/run/docker/netns/1")


def test_the_list_as_its_plugins_were_run() -> None:
    """DEL speaks the version of the ADD, whatever the list says."""
    assert Endpoint(RECORD).network.cni_version == "0.3.1"


def test_before_the_plugins_have_run() -> None:
    """There is no result and no snapshot."""
    assert (Endpoint(RECORD).result, Endpoint(RECORD).snapshot) == (None, None)


def test_documents_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they are read."""
    result: JsonObject = {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.0.2/24"}]}
    endpoint = Endpoint(replace(RECORD, result=result))
    first = endpoint.result
    monkeypatch.setattr("cnm_bridge.model.endpoint.Result.from_document", None)
    assert first is not None
    assert endpoint.result is first
