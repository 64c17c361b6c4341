# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the Docker engine can use a remote network driver."""

import re
from collections.abc import Iterator
from typing import Final

from cnm_bridge.operator.doctor.facts import Facts
from cnm_bridge.operator.doctor.finding import Finding, error, warning

_OLDEST: Final = (20, 10)
_CRASHING: Final = ((29, 0, 0), (29, 0, 2))
"""The first and the last engine that crash with a remote network driver (moby #51554, fixed by #51558)."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


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
