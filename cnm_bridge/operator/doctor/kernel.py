# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the kernel is new enough, has the modules that plugins need, and forwards packets."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.plugin_needs import fix_of_setting, forwarding_links, needed_modules
from cnm_bridge.operator.doctor.facts import Facts, KernelFacts, ModuleState
from cnm_bridge.operator.doctor.finding import Finding, Severity, error

_SYSCTLS: Final = (
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
)
_LISTS: Final = ("modules.builtin", "modules.dep")
_NAME: Final = re.compile(r"([^/\s]+)\.ko")
_NEEDED: Final = (5, 5)
"""The first release with alternative names of links."""
_IPV4, _IPV6 = 4, 6
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


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
    states = {}
    for module in needed:
        if module in known or (root / "sys/module" / module).exists():
            states[module] = ModuleState.USABLE
        elif known:
            states[module] = ModuleState.MISSING
        elif is_modular:
            states[module] = ModuleState.UNREACHABLE
        # Otherwise the kernel has no modules, and nothing lists what is built in.
    return states


def _sysctls(root: Path) -> dict[str, str]:
    values = ((name, _read(root / "proc/sys" / name.replace(".", "/")).strip()) for name in _SYSCTLS)
    return {name: value for name, value in values if value}


def _read(path: Path) -> str:
    """Return the content of a file, "" if it does not exist."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Find an old kernel, missing modules and settings that keep containers from the network."""
    kernel = facts.kernel
    found = _VERSION.match(kernel.release)
    if found is not None and (int(found[1]), int(found[2])) < _NEEDED:
        yield error(
            "kernel-old",
            "kernel",
            f"it is {kernel.release}; links have alternative names, which cni-bridge needs, since 5.5",
            advice="install a newer kernel and restart the host",
        )
    yield from _check_modules(facts)
    yield from _check_sysctls(facts)


def _check_modules(facts: Facts) -> Iterator[Finding]:
    used = {one.configuration for one in facts.engine.networks}
    for module, state in sorted(facts.kernel.modules.items()):
        users = [one.network.name for one in facts.networks if module in needed_modules(one.network)]
        if state is ModuleState.USABLE or not users:
            continue
        is_missing = state is ModuleState.MISSING
        in_use = not used.isdisjoint(users)
        yield Finding(
            severity=Severity.ERROR if in_use else Severity.WARNING,
            code="module-missing" if is_missing else "modules-directory-missing",
            subject=f"kernel module {module}",
            text=f"plugins of {', '.join(users)} need it, and "
            + (
                "this kernel does not have it"
                if is_missing
                else f"it is not loaded and cannot be: /lib/modules/{facts.kernel.release} does not exist, as after an "
                "upgrade of the kernel without a restart"
            ),
            fix="" if is_missing else "systemctl reboot",
            advice="install the kernel's package of further modules, or another kernel" if is_missing else "",
        )


def _check_sysctls(facts: Facts) -> Iterator[Finding]:
    sysctls = facts.kernel.sysctls
    forwarded = [one for one in facts.networks if forwarding_links(one.network)]
    # The plugins switch it on with their first ADD. What is found here is another program that switched it off again.
    used = {address.version: one.network.name for one in forwarded for address in one.reserved}
    for version, name in ((_IPV4, "net.ipv4.ip_forward"), (_IPV6, "net.ipv6.conf.all.forwarding")):
        if version in used and sysctls.get(name) == "0":
            text = f"the host does not forward the packets of containers, e.g. of network {used[version]}"
            yield _setting(name, "0", "1", text)
    ipv6 = [
        one.network.name
        for one in forwarded
        if any(found.subnet.version == _IPV6 for found in find_ranges(one.network))
    ]
    if ipv6 and sysctls.get("net.ipv6.conf.all.disable_ipv6") == "1":
        text = f"the ADD of {', '.join(ipv6)} fails: links accept no IPv6 address"
        yield _setting("net.ipv6.conf.all.disable_ipv6", "1", "0", text)


def _setting(name: str, value: str, wanted: str, text: str) -> Finding:
    return error("sysctl", f"setting {name}", f"it is {value}: {text}", fix=fix_of_setting(name, wanted))
