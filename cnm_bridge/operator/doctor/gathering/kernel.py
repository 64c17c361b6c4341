# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads facts about the kernel from /proc, /sys and /lib/modules."""

import gzip
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cnm_bridge.operator.doctor.facts import KernelFacts, ModuleState

_SYSCTLS: Final = (
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv4.conf.default.rp_filter",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "user.max_net_namespaces",
)
_OPTIONS: Final = {
    "bridge": "BRIDGE",
    "veth": "VETH",
    "macvlan": "MACVLAN",
    "ipvlan": "IPVLAN",
    "8021q": "VLAN_8021Q",
    "dummy": "DUMMY",
    "vrf": "NET_VRF",
    "tun": "TUN",
    "ifb": "IFB",
    "sch_tbf": "NET_SCH_TBF",
}
"""The option of the kernel's configuration that makes each module."""
_LISTS: Final = ("modules.builtin", "modules.dep")
_NAME: Final = re.compile(r"([^/\s]+)\.ko")


def gather_kernel(needed: Iterable[str], *, root: Path = Path("/")) -> KernelFacts:
    """Return facts about the kernel."""
    release = os.uname().release
    return KernelFacts(release=release, modules=_modules(needed, release, root), sysctls=_sysctls(root))


def _modules(needed: Iterable[str], release: str, root: Path) -> dict[str, ModuleState]:
    directory = root / "lib/modules" / release
    is_modular = _read(root / "proc/modules") != ""
    known: set[str] = set()
    for name in _LISTS:
        known |= {
            found[1].replace("-", "_") for found in map(_NAME.search, _read(directory / name).splitlines()) if found
        }
    configuration = _read_configuration(release, root)
    states = {}
    for module in needed:
        if module in known or (root / "sys/module" / module).exists():
            states[module] = ModuleState.USABLE
        elif known:
            states[module] = ModuleState.MISSING
        elif is_modular:
            states[module] = ModuleState.UNREACHABLE
        elif _is_configured(module, configuration) is False:
            states[module] = ModuleState.MISSING
        # Otherwise all of this kernel is built in, and nothing lists it.
    return states


def _read_configuration(release: str, root: Path) -> str:
    """Return the kernel's configuration, "" if it is not published."""
    try:
        return gzip.decompress((root / "proc/config.gz").read_bytes()).decode("utf-8", "replace")
    except (OSError, EOFError):
        return _read(root / "boot" / f"config-{release}")


def _is_configured(module: str, configuration: str) -> bool | None:
    """Return whether a kernel's configuration has a module, None if that is not known."""
    if not configuration or module not in _OPTIONS:
        return None
    return re.search(rf"^CONFIG_{_OPTIONS[module]}=[ym]$", configuration, re.MULTILINE) is not None


def _sysctls(root: Path) -> dict[str, str]:
    values = ((name, _read(root / "proc/sys" / name.replace(".", "/")).strip()) for name in _SYSCTLS)
    return {name: value for name, value in values if value}


def _read(path: Path) -> str:
    """Return the content of a file, "" if it does not exist."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
