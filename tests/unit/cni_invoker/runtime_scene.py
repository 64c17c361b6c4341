# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The scene of the `Runtime` tests: a list of three plugins."""

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, AttachmentKey, Limits, NetworkConfigurationList
from tests.plugins import FakePlugins
from tests.records import list_of

ATTACHMENT = Attachment(
    container_id="some-container-id",
    ifname="eth0",
    netns="/run/netns/c1",
    args=(("FOO", "BAR"),),
    capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
)
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}], "unknown": 1}
LIMITS = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, retry_pauses_s=(0.01, 0.02), executions=4)


def network(*plugins: JsonValue, version: str = "1.1.0") -> NetworkConfigurationList:
    """Make a network configuration list."""
    return list_of(*plugins, name="some-list", version=version)


THREE = network(
    {"type": "first", "some-key": "some-value", "capabilities": {"portMappings": True}},
    {"type": "second", "prevResult": "from the file"},
    {"type": "third"},
)
REFUSED: JsonObject = {"error": {"code": 1, "msg": "incompatible CNI versions"}}
FAILED: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}
KEY = AttachmentKey(container_id="some-container-id", ifname="eth0")


def without_version(plugins: FakePlugins) -> tuple[tuple[str, str], ...]:
    """Return all executions except those for VERSION."""
    return tuple(call for call in plugins.calls if call[1] != "VERSION")
