# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the error of a plugin with the IPAM plugin `dhcp` means."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList, PluginFailed
from cni_invoker.errors import PluginError, PluginTimeout
from cnm_bridge.core.lists.dhcp import daemon_socket, explain_no_lease, find_daemon_socket, find_dhcp

PATH = Path("/opt/cni/bin/bridge")
NO_ADDRESS = "error calling DHCP.Allocate: no more tries"


def failed(plugin: str, msg: str) -> PluginError:
    """Return the error of a plugin that printed a message."""
    return PluginFailed(
        plugin=plugin, verb="ADD", path=PATH, code=999, msg=msg, exit_status=1, signal=None, duration_s=20.0
    )


def timeout(plugin: str, *, started: bool = True) -> PluginError:
    """Return the error of a plugin that was killed after 25 s, or that found no slot."""
    return PluginTimeout(plugin=plugin, verb="ADD", path=PATH, timeout_s=25.0, started=started)


def explain(error: PluginError, **keys: str) -> str | None:
    """Return the explanation of an error of a list whose main plugin is `bridge`."""
    main: JsonObject = {"type": "bridge", "ipam": {"type": "dhcp"}, **keys}
    document: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [main, {"type": "tuning"}]}
    return explain_no_lease(NetworkConfigurationList.from_document(document).plugins[0], error)


@pytest.mark.parametrize("plugin", ["bridge", "dhcp"])
def test_the_daemon_gave_up(plugin: str) -> None:
    """The explanation names the IPAM plugin, what to check and where, and has the plugin's own error."""
    text = explain(failed(plugin, NO_ADDRESS), bridge="br0") or ""
    assert text.startswith("IPAM plugin dhcp: no DHCP server gave an address; ")
    assert "a server answers on the LAN of br0, that its range has a free address" in text
    assert NO_ADDRESS in text


def test_the_plugin_was_killed() -> None:
    """The explanation has the limit."""
    text = explain(timeout("bridge")) or ""
    assert text.startswith("IPAM plugin dhcp: no DHCP server gave an address within 25 s; ")
    assert "answers on the LAN, that" in text


@pytest.mark.parametrize(
    "error",
    [
        failed("bridge", "cannot set MTU"),
        failed("tuning", NO_ADDRESS),
        timeout("tuning"),
        timeout("bridge", started=False),
    ],
    ids=["another error", "another plugin's error", "another plugin was killed", "no free slot"],
)
def test_other_failures(error: PluginError) -> None:
    """They stay as they are."""
    assert explain(error) is None


@pytest.mark.parametrize(
    ("ipam", "socket"),
    [
        ({"type": "dhcp"}, "/run/cni/dhcp.sock"),
        ({"type": "dhcp", "daemonSocketPath": "/run/lan.sock"}, "/run/lan.sock"),
        ({"type": "host-local", "daemonSocketPath": "/run/lan.sock"}, None),
        (None, None),
    ],
)
def test_the_socket_of_a_stored_list(ipam: JsonObject | None, socket: str | None) -> None:
    """It is the same for the document and for the typed list; only a list with DHCP has one."""
    main: JsonObject = {"type": "bridge"} if ipam is None else {"type": "bridge", "ipam": ipam}
    document: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "tuning"}, main]}
    assert find_daemon_socket(document) == (None if socket is None else Path(socket))
    typed = find_dhcp(NetworkConfigurationList.from_document(document))
    assert (None if typed is None else daemon_socket(typed)) == find_daemon_socket(document)
