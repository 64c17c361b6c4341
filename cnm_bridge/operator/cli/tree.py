# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The picture of `cni-bridge ls --tree`: the host, its links, and the containers behind each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cni_bridge_spec import find_str, get_objects, get_str
from cnm_bridge.operator.cli.containers import RUNNING, Inventory, all_addresses
from cnm_bridge.operator.cli.output import UNKNOWN, ports_text

__all__ = ["draw_tree"]

_NO_LINK: Final = "no common link"
_OTHERS: Final = "other drivers"
_WITHOUT_LINK: Final = frozenset({"host", "none"})
"""Docker's networks without a link."""

Branches = Mapping[str, Sequence[str]]
Row = tuple[str, ...]


def draw_tree(inventory: Inventory, network_id: str | None) -> str:
    """Return the picture, which has one line for each link with its network, and one for each container.

    host
    ├── cni-blue  network blue
    │   ├── db   10.22.0.3/16
    │   └── web  10.22.0.2/16  0.0.0.0:8080->80/tcp
    └── other drivers  network bridge
        └── old  172.17.0.2
    """
    branches = _of_ours(inventory, network_id)
    if network_id is None:
        branches |= _of_others(inventory)
    return "\n".join(("host", *_draw(branches)))


def _of_ours(inventory: Inventory, network_id: str | None) -> dict[str, Sequence[str]]:
    """Return the containers of each network, by its link and name."""
    rows: dict[tuple[str, str], list[Row]] = {}
    seen = set()
    for endpoint in get_objects(inventory.document, "endpoints"):
        on = get_str(endpoint, "networkId")
        if network_id in {None, on}:
            seen.add(on)
            link = find_str(endpoint, "hostLink") or _NO_LINK
            container = inventory.containers.get(get_str(endpoint, "id"))
            name = container.name if container else UNKNOWN
            row = name, " ".join(all_addresses(endpoint)), ports_text(get_objects(endpoint, "ports"))
            rows.setdefault((inventory.networks.get(on, on), link), []).append(row)
    empty = {
        f"network {name}  no containers": ()
        for one, name in sorted(inventory.networks.items(), key=lambda item: item[1])
        if one not in seen and network_id in {None, one}
    }
    return {f"{link}  network {name}": _aligned(found) for (name, link), found in sorted(rows.items())} | empty


def _of_others(inventory: Inventory) -> dict[str, Sequence[str]]:
    """Return the running containers on networks of other drivers, with the addresses that Docker shows."""
    ours = inventory.networks
    rows: dict[str, list[Row]] = {}
    for container in inventory.all_containers:
        for network in container.networks if container.state in RUNNING else ():
            name = inventory.network_names.get(network.id, network.key)  # it may have been connected by an ID
            if network.id not in ours and name not in _WITHOUT_LINK:
                rows.setdefault(name, []).append((container.name, " ".join(network.addresses)))
    return {f"{_OTHERS}  network {name}": _aligned(found) for name, found in sorted(rows.items())}


def _aligned(rows: Sequence[Row]) -> Sequence[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = (zip(row, widths, strict=True) for row in sorted(rows))
    return ["  ".join(text.ljust(width) for text, width in row).rstrip() for row in cells]


def _draw(branches: Branches) -> Iterator[str]:
    for number, (heading, leaves) in enumerate(branches.items(), 1):
        is_last = number == len(branches)
        yield f"{'└' if is_last else '├'}── {heading}"
        indent = "    " if is_last else "│   "
        for count, leaf in enumerate(leaves, 1):
            yield f"{indent}{'└' if count == len(leaves) else '├'}── {leaf}"
