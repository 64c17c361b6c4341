# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The first record of an endpoint contains what its plugins' DEL needs, from the beginning."""

from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointId, NetworkId, Phase, ProcessRecord, RequestedInterface
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.planning.records import planned_record, rebuilt_record
from cnm_bridge.core.wire import CreateEndpoint

ENDPOINT = EndpointId("e" * 64)
NETWORK = NetworkId("a" * 64)
LIST: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge"}, {"type": "portmap"}]}
CONFIGURATION = NetworkConfigurationList.from_document(LIST)
RUN_DIR, BOOT = Path("/run/cni-bridge"), "0c1f"


def test_a_planned_endpoint_is_pending_in_its_staging_namespace() -> None:
    """Its plugins will run in the staging namespace of its ID, with the planned list and arguments."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.2/16"))
    request = CreateEndpoint(endpoint_id=ENDPOINT, network_id=NETWORK, requested=requested, options={})
    plan = Plan(configuration=CONFIGURATION, args=(("IP", "10.1.0.2"),), capability_args={"ips": []}, internal=True)
    caller = ProcessRecord(pid=1, started=2)
    record = planned_record(request, plan, caller, run_dir=RUN_DIR, boot_id=BOOT, now_s=1.5)
    assert (record.id, record.network_id, record.phase, record.boot_id) == (ENDPOINT, NETWORK, Phase.PENDING, "0c1f")
    assert (record.internal, record.requested, record.caller) == (True, requested, caller)
    assert record.attachment.netns == f"/run/cni-bridge/netns/{ENDPOINT}"
    assert record.attachment.configuration == LIST
    assert (record.attachment.args, record.attachment.capability_args) == (plan.args, plan.capability_args)


@pytest.mark.parametrize(
    ("mode", "deleted", "ifname"),
    [
        (AttachMode.MOVE, (), "eth0"),
        (AttachMode.HYBRID, (1, 2), "lan0"),
        (AttachMode.DIRECT, (0, 1), "lan0"),
    ],
)
def test_no_delete_is_pending_for_plugins_that_run_at_join(
    mode: AttachMode, deleted: tuple[int, ...], ifname: str
) -> None:
    """In mode *hybrid* the IPAM plugin counts as the first one. In the sandbox the link has its final name at once."""
    request = CreateEndpoint(endpoint_id=ENDPOINT, network_id=NETWORK, requested=RequestedInterface(), options={})
    choice = AttachChoice(mode=mode, reason="")
    plan = Plan(configuration=CONFIGURATION, attach=choice, options=Options(ifname_prefix="lan"))
    record = planned_record(request, plan, None, run_dir=RUN_DIR, boot_id=BOOT, now_s=1.5)
    assert (record.attachment.mode, record.deleted, record.attachment.ifname) == (mode, deleted, ifname)
    assert record.attachment.configuration == LIST


def test_a_rebuilt_endpoint_has_a_result_with_its_addresses() -> None:
    """All plugins of the list receive DEL, with the addresses in prevResult, and `portmap` receives a port."""
    record = rebuilt_record(
        ENDPOINT,
        run_dir=RUN_DIR,
        boot_id=BOOT,
        network_id=NETWORK,
        phase=Phase.JOINED,
        internal=False,
        configuration=CONFIGURATION,
        addresses=("10.1.0.2/16", "fd00::2/64"),
        mac="02:00:00:00:00:01",
    )
    staging = f"/run/cni-bridge/netns/{ENDPOINT}"
    assert record.attachment.mode_reason == "its record was lost, and its sandbox is not pinned"
    assert record.added_plugins == len(CONFIGURATION.plugins)
    assert record.addresses == ("10.1.0.2", "fd00::2")
    assert record.attachment.netns == staging
    assert "portMappings" in record.attachment.capability_args
    assert record.result == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": staging, "mac": "02:00:00:00:00:01"}],
        "ips": [{"address": "10.1.0.2/16", "interface": 0}, {"address": "fd00::2/64", "interface": 0}],
        "dns": {},
    }
