# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the kernel is new enough, and forwards packets."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.plugins import fix_of_setting, forwarding_links
from cnm_bridge.operator.doctor.facts import Facts, KernelFacts
from cnm_bridge.operator.doctor.finding import Finding, error

_SYSCTLS: Final = (
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
)
_NEEDED: Final = (5, 5)
"""The first release with alternative names of links."""
_IPV4, _IPV6 = 4, 6
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def gather_kernel() -> KernelFacts:
    """Return facts about the kernel."""
    values = ((name, _read(Path("/proc/sys", *name.split("."))).strip()) for name in _SYSCTLS)
    return KernelFacts(release=os.uname().release, sysctls={name: value for name, value in values if value})


def _read(path: Path) -> str:
    """Return the content of a file, "" if it does not exist."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Find an old kernel, and settings that keep containers from the network."""
    kernel = facts.kernel
    found = _VERSION.match(kernel.release)
    if found is not None and (int(found[1]), int(found[2])) < _NEEDED:
        yield error(
            "kernel-old",
            "kernel",
            f"it is {kernel.release}; links have alternative names, which cni-bridge needs, since 5.5",
            advice="install a newer kernel and restart the host",
        )
    yield from _check_sysctls(facts)


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
