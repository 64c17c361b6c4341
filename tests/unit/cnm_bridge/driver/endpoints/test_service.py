# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A repeated CreateEndpoint is answered, unless its ID is that of another endpoint, or of one that goes."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state import Phase
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import Refused
from tests.driver_calls import call, reference
from tests.records import NETWORK, endpoint, settings_in

ID = "1" * 64


@pytest.mark.parametrize(
    ("phase", "network", "text"),
    [
        (Phase.DELETING, NETWORK, f"endpoint {ID} already exists and is being torn down"),
        (Phase.JOINED, "c" * 64, f"endpoint {ID} already exists, on network {NETWORK}"),
    ],
)
async def test_an_id_that_is_taken(tmp_path: Path, phase: Phase, network: str, text: str) -> None:
    """The call is refused, and the record stays."""
    settings = settings_in(tmp_path)
    store = Store.open(settings.state_dir)
    record = replace(endpoint(ID), phase=phase)
    await store.put_found_endpoint(record)
    daemon = assemble(settings, store)
    try:
        with pytest.raises(Refused, match=text):
            await call(daemon, "CreateEndpoint", {**reference(ID, network), "Interface": {}})
        assert store.endpoints() == (record,)
    finally:
        await daemon.resources.close()
        store.close()
