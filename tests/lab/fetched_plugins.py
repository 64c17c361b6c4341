# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Newer CNI plugins than the machine's, for tests; `python -m tests.lab.fetch plugins` fetches them.

They are Debian's own of another suite (sid, whose plugins support CNI 1.1.0), in the cache that `debian` describes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, as_object, get_strings, parse_json
from tests.lab.debian import FetchError, Unpacked, fetch_packages, find_packages, run_program

KIND: Final = "plugins"
PACKAGE: Final = "containernetworking-plugins"
DEFAULT_SUITE: Final = "sid"
_PLUGINS: Final = Path("usr/lib/cni")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPlugins:
    """Plugins that were fetched.

    Attributes:
        version: The version of their Debian package, e.g. `1.9.1+ds1-1`.
        directory: Where their executables are.
        cni_versions: The CNI versions that its `bridge` reports.
    """

    version: str
    directory: Path
    cni_versions: tuple[str, ...]


def find_fetched_plugins(suite: str = DEFAULT_SUITE) -> FetchedPlugins | None:
    """Return what was fetched before, None if nothing was.

    Raises:
        FetchError: What was fetched does not run on this machine.
    """
    found = find_packages(KIND, suite)
    return _describe(found) if found is not None else None


def fetch_plugins(suite: str = DEFAULT_SUITE) -> FetchedPlugins:
    """Fetch the plugins of a Debian suite; after a failure what was fetched before is kept.

    Raises:
        FetchError: They could not be fetched.
    """
    return _describe(fetch_packages(KIND, suite, (PACKAGE,), check=_describe))


def _describe(unpacked: Unpacked) -> FetchedPlugins:
    """Describe what was unpacked, after running it on this machine."""
    directory = unpacked.directory / _PLUGINS
    bridge = directory / "bridge"
    output = run_program(str(bridge), stdin='{"cniVersion": "1.0.0"}', environment={"CNI_COMMAND": "VERSION"})
    try:
        cni_versions = get_strings(as_object(parse_json(output.encode()), "its VERSION"), "supportedVersions")
    except JsonError as exc:
        raise FetchError(f"{bridge} does not tell its versions: {exc}") from exc
    return FetchedPlugins(version=unpacked.version, directory=directory, cni_versions=cni_versions)
