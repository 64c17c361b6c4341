# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the kernel is new enough, and forwards packets; whether the engine can use a remote network driver."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.plugins import fix_of_setting, forwarding_links
from cnm_bridge.operator.doctor.facts import Facts, Finding, error, warning

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
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def read_sysctls() -> Mapping[str, str]:
    """Return the host's settings, see `Facts`."""
    values = {}
    for name in _SYSCTLS:
        with suppress(OSError):  # the kernel does not have it
            values[name] = Path("/proc/sys", *name.split(".")).read_text("utf-8", "replace").strip()
    return values


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Find an old kernel, and settings that keep containers from the network."""
    found = _VERSION.match(facts.kernel)
    if found is not None and (int(found[1]), int(found[2])) < _NEEDED:
        yield error(
            "kernel-old",
            "kernel",
            f"it is {facts.kernel}; links have alternative names, which cni-bridge needs, since 5.5",
            advice="install a newer kernel and restart the host",
        )
    yield from _check_sysctls(facts)


def _check_sysctls(facts: Facts) -> Iterator[Finding]:
    sysctls = facts.sysctls
    forwarded = [configured for configured in facts.networks if forwarding_links(configured.network)]
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


_OLDEST: Final = (20, 10)
_CRASHING: Final = ((29, 0, 0), (29, 0, 2))
"""The first and the last engine that crash with a remote network driver (moby #51554, fixed by #51558)."""


def check_engine(facts: Facts) -> Iterator[Finding]:
    """Find an engine that does not answer, is too old, crashes or has no rights."""
    engine = facts.engine
    subject = f"engine at {engine.address}"
    if engine.version is None:
        yield warning(
            "engine-silent",
            subject,
            f"it does not answer ({engine.silence}): what concerns it was not examined, and the daemon compares "
            "nothing with it",
            fix="" if facts.installation.units is None else "systemctl start docker",
            advice="start dockerd; or correct docker-host in /etc/cni-bridge/config.toml",
        )
        return
    found = _VERSION.match(engine.version)
    version = (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None
    if version is not None and version[:2] < _OLDEST:
        yield error(
            "engine-old",
            subject,
            f"it is {engine.version}; cni-bridge is tested with 20.10 and newer",
            advice="install a newer Docker Engine",
        )
    if version is not None and _CRASHING[0] <= version <= _CRASHING[1]:
        yield error(
            "engine-crashes",
            subject,
            f"it is {engine.version}; 29.0.0 to 29.0.2 crash when a container joins a network of a remote driver "
            "(moby #51558)",
            advice="install Docker Engine 29.0.3 or newer",
        )
    if engine.is_rootless:
        yield error(
            "engine-rootless",
            subject,
            "it runs without root, in namespaces of its own, which the daemon does not see",
            advice="use an engine that runs as root",
        )
    if engine.namesake:
        yield error(
            "plugin-of-same-name",
            f"managed plugin {engine.namesake}",
            "it has the name of this host's driver. Docker looks for a managed plugin first, so from its next restart "
            "on it gives this driver's networks to the plugin, which does not know them",
            advice="docker plugin disable it before dockerd restarts, and make it again with another name, such as cni",
        )
    if engine.unused_plugin:
        yield error(
            "plugin-without-driver",
            f"managed plugin {engine.unused_plugin}",
            "it is enabled, and Docker does not find its driver: the daemon was too slow to answer Docker's first "
            "call, and Docker does not repeat it",
            fix=f"docker plugin disable --force {engine.unused_plugin} && docker plugin enable {engine.unused_plugin}",
        )
