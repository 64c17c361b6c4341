# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon knows of an endpoint beside its record goes with the record."""

from dataclasses import replace
from pathlib import Path

from cni_bridge_state import Phase
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import CannotPublish
from cnm_bridge.core.settings import Settings
from cnm_bridge.core.wire import ProgramExternalConnectivity
from tests.records import endpoint


async def test_nothing_is_kept_of_a_removed_endpoint(store: Store, tmp_path: Path) -> None:
    """This also holds if neither Leave nor DeleteEndpoint came before its teardown, as after a crash of dockerd."""
    directories = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/no")
    daemon = assemble(directories, store)
    joined = endpoint(
        "e" * 64, capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    )
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(joined, phase=phase))
    await daemon.port_publisher.load()
    request = ProgramExternalConnectivity(network_id=joined.network_id, endpoint_id=joined.id, ports=())
    await daemon.joined.unpublished.accept(request, CannotPublish("ports cannot be published"))
    claims, reasons = daemon.port_publisher.claims, daemon.joined.unpublished.reasons
    assert (len(claims.of(joined.id)), len(reasons)) == (1, 1)
    await store.put_endpoint(replace(joined, phase=Phase.DELETING))
    await store.remove_endpoint(joined.id)
    assert (len(claims.of(joined.id)), len(reasons)) == (0, 0)
