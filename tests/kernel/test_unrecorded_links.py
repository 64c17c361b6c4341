# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding running containers whose endpoint has no record."""

import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from cni_bridge_state import AttachmentId
from cnm_bridge.core.model.naming import alternative_name

ATTACHMENT: Final = AttachmentId(token_hex(32))
ADDRESS, OTHER = "10.201.7.9", "10.201.7.10"

# A user namespace may enter the network namespaces that it has made, and no others.
PREPARE: Final = f"""
set -eu
touch own
unshare --net sh -euc '
    mount --bind /proc/self/ns/net own
    ip link add marked type veth peer name other
    ip link property add dev marked altname {alternative_name(ATTACHMENT)}
    ip address add {ADDRESS}/24 dev marked'
exec "$@"
"""
LOOK: Final = f"""
import asyncio
from pathlib import Path
from cni_bridge_state.store import Store
from cnm_bridge.driver.teardown.address_owners import AddressInUse, UnrecordedLinks
from cnm_bridge.system.kernel import Kernel

async def look():
    kernel = Kernel(reply_limit_s=5.0)
    kernel.distrust_processes()
    unrecorded = UnrecordedLinks(Store.open(Path("state")), kernel, Path("run").absolute())
    await unrecorded.refuse_if_used("firewall", ["{OTHER}"])
    print("{OTHER} is free")
    for _ in range(2):
        try:
            await unrecorded.look(["{ADDRESS}"])
            await unrecorded.refuse_if_used("firewall", ["{ADDRESS}"])
        except AddressInUse as exc:
            print(exc)

asyncio.run(look())
"""


@pytest.mark.usefixtures("sandbox")
def test_a_namespace_that_cannot_be_read(tmp_path: Path) -> None:
    """It is logged once, and does not keep the DEL of others from running; what the others have is seen."""
    unshared = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    command = [*unshared, "sh", "-c", PREPARE, "sh", sys.executable, "-c", LOOK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{OTHER} is free" in done.stdout
    assert done.stdout.count(f"endpoint {ATTACHMENT} has no record and has the same address") == 2
    assert done.stdout.count("teardown.namespaces_unread") == 1
    assert "cannot enter namespace: Operation not permitted" in done.stdout
