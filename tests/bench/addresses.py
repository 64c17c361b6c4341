# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What RequestAddress and ReleaseAddress cost in addition to the IPAM plugin, which each of them executes once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from tests.bench.statistics import Series, render_table

_NAME: Final = "benchaddresses"
_SECTION: Final[JsonObject] = {
    "cniVersion": "1.0.0",
    "name": _NAME,
    "ipam": {"type": "host-local", "subnet": "10.93.0.0/16"},
}
_POOL: Final = f"{_NAME},10.93.0.0/16,,00"


def measure_addresses(
    configurations: Path,
    rounds: int,
    *,
    call: Callable[[str, JsonObject], tuple[float, JsonObject]],
    bare: Callable[[str, Path], tuple[float, float]],
) -> None:
    """Measure and print the table.

    Args:
        configurations: The directory of the network configurations.
        rounds: The number of addresses.
        call: Calls the daemon; returns the milliseconds, and the reply.
        bare: Executes ADD and DEL of a plugin with a configuration; returns the milliseconds of each.
    """
    (configurations / f"{_NAME}.ipam").write_text(json.dumps(_SECTION))
    plain = Path(f"/run/{_NAME}.json")
    plain.write_text(json.dumps({**_SECTION, "name": f"{_NAME}-bare", "type": "host-local"}))
    names = ("RequestAddress", "ReleaseAddress", "bare host-local: ADD", "bare host-local: DEL")
    series = {name: Series() for name in names}
    _, kept = call("IpamDriver.RequestAddress", {"PoolID": _POOL, "Address": ""})  # so that there is always one
    for _ in range(rounds):
        add_ms, del_ms = bare("host-local", plain)
        request_ms, reply = call("IpamDriver.RequestAddress", {"PoolID": _POOL, "Address": ""})
        address = str(reply["Address"]).partition("/")[0]
        release_ms, _ = call("IpamDriver.ReleaseAddress", {"PoolID": _POOL, "Address": address})
        for name, value in zip(names, (request_ms, release_ms, add_ms, del_ms), strict=True):
            series[name].add(value)
    call("IpamDriver.ReleaseAddress", {"PoolID": _POOL, "Address": str(kept["Address"]).partition("/")[0]})
    call("IpamDriver.ReleasePool", {"PoolID": _POOL})
    rows = {
        **series,
        "RequestAddress beyond the plugin": series[names[0]].minus(series[names[2]]),
        "ReleaseAddress beyond the plugin": series[names[1]].minus(series[names[3]]),
    }
    print(render_table(f"an address for Docker's own drivers ({rounds} rounds)", rows))
