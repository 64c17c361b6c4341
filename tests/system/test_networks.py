# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks: how they are bound to configurations, and what is refused."""

import sys
from ipaddress import ip_network

import pytest

from spec import JsonObject, JsonValue
from tests.system.scene import LISTS, Scene, bridge, reaches, wait_said


def test_bound_by_option(scene: Scene) -> None:
    """`-o cni.network=NAME` binds a Docker network of any name."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet)))
    assert reaches(scene.run(network), subnet.gateway)


@pytest.mark.smoke
def test_bound_by_name(scene: Scene) -> None:
    """Without the option, the configuration of the network's own name is used, also for a container at once."""
    subnet = scene.subnet()
    network = scene.network(None, name=scene.configure(bridge(subnet)))
    assert reaches(scene.run(network), subnet.gateway)


def test_an_edit_counts_for_the_next_container(scene: Scene) -> None:
    """A changed configuration is used at once, and does not disturb the removal of what the old one made."""
    old, new = scene.subnet(), scene.subnet()
    name = scene.configure(bridge(old))
    network = scene.network(name)
    before = scene.lab.state()
    first = scene.run(network)
    scene.configure(bridge(new), name=name)
    second = scene.run(network)
    assert first.link().addresses[0].ip in ip_network(old.ipv4)
    assert second.link().addresses[0].ip in ip_network(new.ipv4)
    scene.lab.docker("rm", "-f", first.name, second.name)
    assert scene.lab.wait_clean(before) == ""


def test_a_removed_configuration_does_not_keep_containers(scene: Scene) -> None:
    """A container whose configuration is gone can be removed, completely, and no new one can start."""
    name = scene.configure(bridge(scene.subnet()))
    network = scene.network(name)
    before = scene.lab.state()
    container = scene.run(network)
    scene.lab.remove(f"/etc/cni/net.d/{name}.conflist")
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""
    assert f"no network configuration named '{name}'" in scene.run_refusal(network)


def test_a_configuration_that_offers_more_than_its_plugins_speak(scene: Scene) -> None:
    """The newest version that all plugins speak is used; where there is none, it is said who speaks which."""
    subnet = scene.subnet()
    offer: JsonObject = {"name": "offer", "cniVersions": ["0.4.0", "1.1.0"], "plugins": list(bridge(subnet))}
    scene.plugin("host-local", "exec /usr/lib/cni/host-local", supports=["0.4.0"])
    scene.file("offer.conflist", offer)
    network = scene.network("offer")
    before = scene.lab.state()
    container = scene.run(network)
    assert reaches(container, subnet.gateway)
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""
    scene.file("offer.conflist", {**offer, "cniVersions": ["1.1.0", "0.3.1"]})
    said = scene.creation_refusal("--ipam-driver", "null", "-o", "cni.network=offer")
    assert 'host-local does not support config version "1.1.0", "0.3.1"; it supports 0.4.0' in said


def test_network_with_containers_is_not_removed(scene: Scene) -> None:
    """Docker keeps a network in use, and removes it when it is not."""
    network, _ = scene.bridge_network()
    container = scene.run(network)
    assert "active endpoints" in scene.refusal("network", "rm", network)
    scene.lab.docker("rm", "-f", container.name)
    scene.lab.docker("network", "rm", network)


def test_unknown_configuration(scene: Scene) -> None:
    """The error lists the configurations there are, the nearest first, and the directories searched."""
    name = scene.configure(bridge(scene.subnet()), name="lan-blue")
    said = scene.creation_refusal("--ipam-driver", "null", "-o", "cni.network=lan-blu")
    assert "'lan-blu'" in said
    assert name in said
    assert "/etc/cni/net.d" in said


def test_no_configuration_at_all(scene: Scene) -> None:
    """A host without configurations is told where to put one."""
    assert scene.lab.run("ls", "/etc/cni/net.d", check=False).stdout == ""
    said = scene.creation_refusal("--ipam-driver", "null")
    assert "no network configuration" in said
    assert "/etc/cni/net.d" in said


def test_no_configuration_of_the_networks_name(scene: Scene) -> None:
    """A network bound by name to nothing says so when a container comes, and what to do."""
    scene.configure(bridge(scene.subnet()))
    network = scene.network(None, name="nameless")
    said = scene.run_refusal(network)
    assert "no network configuration named 'nameless'" in said
    assert "-o cni.network=NAME" in said


def test_a_malformed_file_hides_nothing(scene: Scene) -> None:
    """An error names a broken file with line and column; other files are not affected."""
    broken = scene.file("00-broken.conflist", '{\n  "name": "broken",\n  "plugins" [\n')
    subnet = scene.subnet()
    assert reaches(scene.run(scene.network(scene.configure(bridge(subnet)))), subnet.gateway)
    said = scene.creation_refusal("--ipam-driver", "null", "-o", "cni.network=broken")
    assert broken in said
    assert "line 3, column 13" in said or "3:13" in said


@pytest.mark.parametrize(
    "plugins",
    [[{"type": "no-such-plugin"}], [{"type": "bridge", "ipam": {"type": "no-such-plugin"}}]],
    ids=["plugin", "IPAM plugin"],
)
def test_missing_plugin(scene: Scene, plugins: list[dict[str, str]]) -> None:
    """A list whose binary is missing is refused when the network is made, with the directories searched."""
    name = scene.configure(plugins)
    said = scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={name}")
    assert "no-such-plugin" in said
    assert "/opt/cni/bin" in said
    assert "/usr/lib/cni" in said


def test_unknown_option(scene: Scene) -> None:
    """A slip in an option is answered with the option that was meant."""
    said = scene.creation_refusal("--ipam-driver", "null", "-o", "cni.netwrk=x")
    assert "option cni.netwrk" in said
    assert "did you mean cni.network?" in said


def test_dockers_own_ipam(scene: Scene) -> None:
    """Without the null IPAM driver Docker and the plugins would each choose addresses; the error says what to do."""
    name = scene.configure(bridge(scene.subnet()))
    assert "--ipam-driver null" in scene.creation_refusal("-o", f"cni.network={name}")


def test_no_link(scene: Scene) -> None:
    """A list that makes no link for the container says so, by name."""
    name = scene.configure([{"type": "loopback"}])
    said = scene.run_refusal(scene.network(name))
    assert f"{name} made no link" in said
    assert "only lo" in said


def test_failing_plugin(scene: Scene) -> None:
    """The plugin's own message, code, details and last words reach the user, and all before it is undone."""
    scene.plugin(
        "grumpy",
        """
        [ "$CNI_COMMAND" = ADD ] || exit 0
        echo "the cable is not in" >&2
        echo '{"cniVersion": "1.0.0", "code": 117, "msg": "no carrier", "details": "port 3"}'
        exit 1
        """,
    )
    network = scene.network(scene.configure([*LISTS["bridge dual stack"](scene.subnet()), {"type": "grumpy"}]))
    before = scene.lab.state()
    said = scene.run_refusal(network)
    for part in ('"grumpy" failed (add)', "no carrier", "117", "port 3", "the cable is not in"):
        assert part in said
    assert scene.lab.wait_clean(before) == ""


RENAMED = "import json, sys; c = json.load(sys.stdin); c['ipam']['type'] = 'host-local'; c['type'] = 'bridge'"
"""The beginning of a program in Python that makes the configuration of `bridge` of one whose IPAM has another name."""


@pytest.mark.smoke
@pytest.mark.parametrize("versions", [{"cniVersion": "1.0.0"}, {"cniVersions": ["0.4.0", "1.0.0"]}])
def test_an_ipam_type_without_executable(scene: Scene, versions: JsonObject) -> None:
    """A plugin may take the name for its own; the log and `explain` warn, and the container starts."""
    scene.plugin("vnet", f"""python3 -c "{RENAMED}; print(json.dumps(c))" | /usr/lib/cni/bridge""")
    subnet = scene.subnet()
    ipam: JsonObject = {"type": "azure-cns", "ranges": [[{"subnet": subnet.ipv4}]]}
    name = f"azure{subnet.number}"
    plugins: JsonValue = [{"type": "vnet", "bridge": subnet.bridge, "ipam": ipam}]
    scene.file(f"{name}.conflist", {"name": name, **versions, "plugins": plugins})
    network = scene.network(name)
    assert "azure-cns (ipam): not found in " in wait_said(scene.lab, "configuration.guessed")
    scene.run(network)
    explained = scene.lab.run(sys.executable, "-m", "cnm_bridge", "explain", network).stdout
    assert "right if vnet does not execute it" in explained


def test_a_plugin_that_omits_the_version_of_the_list(scene: Scene) -> None:
    """A list of one version is spoken in it, as libcni does, even if the plugin's answer to VERSION has another."""
    scene.plugin("modest", "exec /usr/lib/cni/bridge", supports=["0.4.0"])
    subnet = scene.subnet()
    main = {**LISTS["bridge"](subnet)[0], "type": "modest"}
    network = scene.network(scene.configure([main]))
    assert '\\"1.0.0\\"; it supports 0.4.0, as it says itself' in wait_said(scene.lab, "plugin modest does not")
    scene.run(network)


@pytest.mark.parametrize("how", ["refuses", "cannot be executed"])
def test_a_plugin_that_refuses_its_undo_as_well(scene: Scene, how: str) -> None:
    """The others undo their work; the endpoint is pending until the plugin has completed its DEL as well."""
    scene.plugin("stubborn", """echo '{"code": 100, "msg": "never"}'; exit 1""")
    before = scene.lab.state()
    network = scene.network(
        scene.configure([*bridge(scene.subnet(), ipv6=True), {"type": "stubborn"}, {"type": "firewall"}])
    )
    if how == "cannot be executed":
        scene.lab.write("/opt/cni/bin/stubborn", "no program", mode=0o755)
    assert "stubborn" in scene.run_refusal(network)
    assert scene.lab.daemon is not None
    assert "endpoint.teardown_pending" in scene.lab.daemon.log()
    scene.lab.write("/opt/cni/bin/stubborn", "#!/bin/sh\nexit 0\n", mode=0o755)
    scene.lab.docker("network", "rm", network)
    assert scene.lab.wait_clean(before) == ""


def test_a_plugin_whose_result_has_no_addresses(scene: Scene) -> None:
    """The masquerading of `bridge` is undone, though the last result of the chain tells no addresses."""
    scene.plugin("mute", """[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.0.0"}'; exit 0""")
    network = scene.network(scene.configure([bridge(scene.subnet(), ipv6=True)[0], {"type": "mute"}]))
    before = scene.lab.state()
    container = scene.run(network)
    assert len(container.link().addresses) == 2
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""
