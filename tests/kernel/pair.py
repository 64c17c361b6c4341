# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A pair of links: one end moves from staging, where plugins make it, to a sandbox; the other one stays outside."""

from secrets import token_hex

from cnm_bridge.core.link_state import Observation, Snapshot
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace

HOST_NAME = "cb0123456789a"
ALTNAME = f"cni-bridge-0123456789a{token_hex(27)[1:]}"
"""Unique on this machine: a link that is missing is searched for in the namespaces of root's processes."""
EVERYTHING = Observation(settings=None, thorough=True)


async def prepare(
    kernel: Kernel, host: Namespace, staging: Namespace, *commands: str, observation: Observation | None = None
) -> Snapshot:
    """Make `eth0` in staging, run `commands` there as plugins would, and take it out; its peer is `outside`."""
    baseline = await kernel.create_staging(staging.path, "eth0", observation or Observation())
    host.ip(f"link add outside up type veth peer name eth0 netns {staging.path}")
    staging.ip("link set eth0 up", "address add 10.1.0.2/24 dev eth0", "address add fd00::2/64 dev eth0 nodad")
    for command in commands:
        staging.run(command)
    return await kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out(baseline)


def place_link(host: Namespace, sandbox: Namespace) -> None:
    """Move the link to the sandbox as libnetwork does: another name, one address of each family, up."""
    host.ip(f"link set {HOST_NAME} netns {sandbox.path} name eth7")
    sandbox.ip("address add 10.1.0.2/24 dev eth7", "address add fd00::2/64 dev eth7 nodad", "link set eth7 up")
