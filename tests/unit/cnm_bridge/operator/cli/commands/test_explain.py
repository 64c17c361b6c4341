# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge explain` shows what would be done, and changes nothing; what the name of a network stands for."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from cni_bridge_spec import JsonObject, get_objects
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.operator.cli.commands.explain import ExplainedNetwork, find_explained_network
from cnm_bridge.operator.cli.main import main
from cnm_bridge.system.engine import Engine
from tests.answering_engine import answering
from tests.plugins import FakePlugins

LIST: JsonObject = {
    "cniVersions": ["0.4.0", "1.0.0"],
    "name": "blue",
    "plugins": [
        {
            "type": "bridge",
            "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.9.0.0/16", "mtu": 1400}]},
        },
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}, "capabilities": {"mac": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}

MOVED = "Docker knows all of a link that it moves itself."
HINT = "--plugins shows what each receives."


@pytest.fixture
def plugins(tmp_path: Path) -> FakePlugins:
    """Plugins that record their executions, and the list that uses them."""
    plugins = FakePlugins(tmp_path / "bin")
    for name in ("bridge", "host-local", "tuning", "portmap"):
        plugins.install(name)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "blue.conflist").write_text(json.dumps(LIST))
    return plugins


def explain(tmp_path: Path, *arguments: str) -> Result:
    """Run the command."""
    directories = (
        f"--cni-conf-dir={tmp_path}/conf",
        f"--cni-bin-dir={tmp_path}/bin",
        "--run-dir=/run/x",
        f"--docker-host=unix://{tmp_path}/none",
    )
    return CliRunner().invoke(main, ["explain", *directories, *arguments])


def test_the_input_of_each_plugin_is_shown(tmp_path: Path, plugins: FakePlugins) -> None:
    """Standard input and environment are shown in the negotiated version; VERSION alone was run."""
    options = ("-o", "cni.ips=10.1.0.9", "-o", "cni.args.A=1", "--mac-address=02:11:22:33:44:55", "--json")
    done = explain(tmp_path, *options, "blue")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["name"], found["cniVersion"], found["addresses"]) == ("blue", "1.0.0", ["10.1.0.9"])
    bridge, tuning, portmap = found["plugins"]
    assert bridge["stdin"]["args"] == {"cni": {"ips": ["10.1.0.9"]}}
    assert bridge["environment"] == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "ENDPOINT-ID",
        "CNI_NETNS": "/run/x/netns/ENDPOINT-ID",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "IgnoreUnknown=1;A=1;MAC=02:11:22:33:44:55",
        "CNI_PATH": f"{tmp_path}/bin",
    }
    assert tuning["stdin"]["runtimeConfig"] == {"mac": "02:11:22:33:44:55"}
    assert [plugin["publishesPorts"] for plugin in (bridge, tuning, portmap)] == [False, False, True]
    assert found["sandboxSync"] == ["route to 10.9.0.0/16: its mtu", "sysctls of tuning: net.core.somaxconn"]
    assert {command.verb for command in plugins.commands} == {"VERSION"}


def test_the_explanation_in_plain_words(tmp_path: Path, plugins: FakePlugins) -> None:
    """A few sentences say what a container gets."""
    done = explain(tmp_path, "blue")
    assert plugins.commands
    assert done.stdout.splitlines() == [
        "A container on blue gets an address of 10.1.0.0/24, with the gateway 10.1.0.1.",
        "Its link ethN is moved into it by Docker (mode move), because " + MOVED,
        "Ports (-p) are published by portmap.",
        "Containers find each other by name.",
        f"The list blue ({tmp_path}/conf/blue.conflist, CNI 1.0.0) runs bridge, tuning and portmap; " + HINT,
    ]
    assert " gets 10.1.0.9, or does not start.\n" in explain(tmp_path, "-o", "cni.ips=10.1.0.9", "blue").stdout


@pytest.mark.parametrize(
    ("main", "words"),
    [
        ({"type": "bridge"}, "no address: the list has no IPAM plugin"),
        ({"type": "bridge", "ipam": {"type": "acme"}}, "the addresses that acme gives"),
        ({"type": "own"}, "the addresses that own gives"),
    ],
)
def test_who_gives_the_addresses(tmp_path: Path, plugins: FakePlugins, main: JsonObject, words: str) -> None:
    """A plugin that is not known to leave it to an IPAM plugin may do it itself."""
    plugins.install("acme")
    plugins.install("own")
    (tmp_path / "conf" / "red.conflist").write_text(json.dumps({**LIST, "name": "red", "plugins": [main]}))
    assert explain(tmp_path, "red").stdout.startswith(f"A container on red gets {words}.\n")


def test_the_explanation_as_text(tmp_path: Path, plugins: FakePlugins) -> None:
    """With --plugins all that --json has is printed as text."""
    given = ("-o", "cni.ifname-prefix=lan", "--mac-address=02:11:22:33:44:55")
    done = explain(tmp_path, "--plugins", *given, "blue")
    assert plugins.commands
    doubt = f"whether there is a Docker network 'blue' is not known: Docker Engine at unix://{tmp_path}/none"
    assert f"cni-bridge: {doubt}" in done.output
    assert "Its link lanN is moved" in done.output
    assert "MAC            02:11:22:33:44:55, set by the plugins" in done.output
    assert f"3. portmap ({tmp_path}/bin/portmap)" in done.output
    assert '   "cniVersion": "1.0.0"' in done.output
    assert "not run now, but with the ports to publish" in done.output


@pytest.mark.parametrize(
    ("arguments", "is_said"),
    [((), True), (("-o", "cni.attach=sandbox"), True), (("--attach=fast", "-o", "cni.attach=move"), False)],
)
def test_the_release_of_the_engine_is_not_known(
    tmp_path: Path, plugins: FakePlugins, arguments: tuple[str, ...], *, is_said: bool
) -> None:
    """Only mode *move* works with every engine."""
    done = explain(tmp_path, *arguments, "--json", "blue")
    assert done.exit_code == 0, done.output
    text = "the attach mode may be another one: it depends on the version of the Docker Engine, which is not known here"
    assert (text in done.stderr) is is_said
    assert plugins.commands


def test_a_guarded_network(tmp_path: Path, plugins: FakePlugins) -> None:
    """The explanation has a sentence about it; that of another network has none."""
    plugins.install("egress")
    guard: JsonObject = {"type": "egress", "allow": ["a.example"]}
    document = {"cniVersion": "1.0.0", "name": "agents", "plugins": [{"type": "bridge"}, guard]}
    (tmp_path / "conf" / "agents.conflist").write_text(json.dumps(document))
    assert "It reaches only what the plugin egress allows." in explain(tmp_path, "agents").output
    assert "reaches" not in explain(tmp_path, "blue").output


def test_what_is_wrong_with_the_list(tmp_path: Path, plugins: FakePlugins) -> None:
    """A missing IPAM plugin comes first."""
    (plugins.directory / "host-local").unlink()
    done = explain(tmp_path, "blue")
    assert done.exit_code == 1
    problem = f"host-local (ipam): not found in {tmp_path}/bin; it is one of the CNI project's own"
    assert done.stdout.startswith(f"No container starts on blue: {problem}")


def test_an_option_of_a_newer_engine_is_a_warning(tmp_path: Path, plugins: FakePlugins) -> None:
    """The daemon ignores it, too; one of the driver's own is refused."""
    option = "com.docker.network.endpoint.foo"
    warning = f"option {option} is not known to this version, and is ignored"
    assert json.loads(explain(tmp_path, "--json", "-o", f"{option}=1", "blue").stdout)["warnings"] == [warning]
    assert f"\nwarning        {warning}\n" in explain(tmp_path, "-o", f"{option}=1", "blue").output
    assert plugins.commands


def test_malformed_plugin_settings(tmp_path: Path, plugins: FakePlugins) -> None:
    """What known plugins reject is a problem; the valid settings beside it are explained."""
    ipam = {"type": "host-local", "subnet": "10.1.0.0/24", "routes": "none"}
    tuning = {"type": "tuning", "sysctl": ["net.core.somaxconn"]}
    document = {
        "cniVersion": "1.0.0",
        "name": "odd",
        "plugins": [{"type": "bridge", "ipam": ipam}, tuning, {"type": "sbr"}],
    }
    (tmp_path / "conf" / "odd.conflist").write_text(json.dumps(document))
    plugins.install("sbr")
    done = explain(tmp_path, "--json", "odd")
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["problems"] == [
        'host-local (ipam): "routes" must be an array, not a string',
        'tuning: "sysctl" must be an object, not an array',
    ]
    assert json.loads(done.stdout)["sandboxSync"] == ["policy rules and routing tables of sbr"]


def test_the_mode_of_a_container_on_several_networks(tmp_path: Path, plugins: FakePlugins) -> None:
    """Its networks are known at Join only; the addresses that a plugin reserves before are named once."""
    plugins.install("static")
    sandbox = ("-o", "cni.attach=sandbox")
    shown = explain(tmp_path, *sandbox, "blue").output
    assert "gets an address of 10.1.0.0/24, with the gateway 10.1.0.1.\n" in shown
    how = "made in it by the plugins (mode sandbox), because cni.attach=sandbox.\nOn several networks it is moved."
    assert how in shown
    assert "several networks" not in explain(tmp_path, "-o", "cni.attach=move", "blue").output
    named = ("-o", "com.docker.network.endpoint.ifname=wan7")
    assert "several networks" not in explain(tmp_path, *sandbox, *named, "blue").output
    plugins.install("vrf")
    document = {**LIST, "name": "red", "plugins": [*get_objects(LIST, "plugins"), {"type": "vrf"}]}
    (tmp_path / "conf" / "red.conflist").write_text(json.dumps(document))
    shown = explain(tmp_path, *sandbox, "red").output
    assert "On several networks it is refused, unless its link has a name of its own." in shown


@pytest.mark.parametrize(
    ("mode", "identity"),
    [
        ("move", "docker, but not known in mode move"),
        ("sandbox", "docker: added at Join to what the plugins receive; without it they run all the same"),
    ],
)
def test_an_identity_is_explained(tmp_path: Path, plugins: FakePlugins, mode: str, identity: str) -> None:
    """As it depends on the mode."""
    plugins.install("static")
    given = ("-o", f"cni.attach={mode}", "-o", "cni.identity=docker")
    assert json.loads(explain(tmp_path, *given, "--json", "blue").stdout)["identity"] == identity


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (("blu",), 2, "'blu'"),
        (("-o", "cni.bandwidth.ingress-rate=1M", "blue"), 1, '"type": "bandwidth"'),
        (("-o", "cni.ipz=1", "blue"), 2, "did you mean cni.ips?"),
        (("-o", "cni.ips", "blue"), 2, "is not KEY=VALUE"),
    ],
)
def test_options_are_rejected_as_by_docker_calls(
    tmp_path: Path, plugins: FakePlugins, arguments: tuple[str, ...], status: int, error: str
) -> None:
    """The error is that of CreateNetwork or CreateEndpoint, and no plugin runs."""
    done = explain(tmp_path, *arguments)
    assert done.exit_code == status
    assert error in done.output
    assert not plugins.commands


def test_a_plugin_in_process(tmp_path: Path, plugins: FakePlugins) -> None:
    """Where an executable is shown, it says so; none is needed."""
    plugins.install("bridge")
    document = {"cniVersion": "1.0.0", "name": "red", "plugins": [LIST["plugins"][0], {"type": "egress"}]}  # type: ignore[index]
    (tmp_path / "conf" / "red.conflist").write_text(json.dumps(document))
    done = explain(tmp_path, "--plugins", "red")
    assert "2. egress (in process)" in done.stdout, done.output
    assert [one["path"] for one in json.loads(explain(tmp_path, "--json", "red").stdout)["plugins"]] == [
        f"{tmp_path}/bin/bridge",
        None,
    ]


DOCKER: Mapping[str, JsonObject] = {
    "by-option": {"Options": {"cni.network": "blue", "cni.ips": "10.1.0.9", "cni.args.A": "1"}, "Internal": True},
    "green": {"Options": {}},
    "blue": {"Options": {"cni.network": "green"}},
    "nameless": {"Options": {}},
    "dangling": {"Options": {"cni.network": "gone"}},
    "foreign": {"Driver": "bridge", "Options": {"com.docker.network.bridge.name": "br0"}},
    "red": {"Driver": "bridge"},
}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine that has these networks."""
    common: JsonObject = {"Driver": "cni-bridge", "Scope": "local", "Containers": {}, "IPAM": {"Config": []}}

    async def network(request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if name not in DOCKER:
            return web.json_response({"message": f"network {name} not found"}, status=404)
        return web.json_response({"Id": f"id-{name}", "Name": name, **common, **DOCKER[name]})

    names = (*DOCKER, "pink")
    async with answering(tmp_path / "engine", {f"networks/{name}": network for name in names}) as engine:
        yield engine


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A directory with the configurations blue, green and red."""
    for name in ("blue", "green", "red"):
        document = {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge"}]}
        (tmp_path / f"{name}.conflist").write_text(json.dumps(document))
    return tmp_path


async def find(conf: Path, engine: Engine, name: str, **given: str) -> ExplainedNetwork:
    """Resolve a name with options."""
    options = {f"cni.{key}": value for key, value in given.items()}
    return await find_explained_network(name, options, [conf], engine, "cni-bridge")


async def test_a_docker_network_is_found_with_its_options(conf: Path, engine: Engine) -> None:
    """Given options override the network's; its list is that of `cni.network`, or else of its name."""
    found = await find(conf, engine, "by-option", ips="10.1.0.10")
    assert found.configuration.name == "blue"
    assert [str(address) for address in found.options.ips] == ["10.1.0.10"]
    assert found.options.args == (("A", "1"),)
    assert found.docker is not None
    assert found.docker.internal
    found = await find(conf, engine, "green")
    assert (found.configuration.name, found.docker is None) == ("green", False)


async def test_a_docker_network_wins_over_a_configuration(conf: Path, engine: Engine) -> None:
    """A container on the Docker network would use it; the option `cni.network` wins over both."""
    assert (await find(conf, engine, "blue")).configuration.name == "green"
    assert (await find(conf, engine, "blue", network="red")).configuration.name == "red"


async def test_a_configuration_is_found_by_its_name(conf: Path, engine: Engine) -> None:
    """A Docker network of another driver with that name is ignored."""
    found = await find(conf, engine, "red")
    assert (found.configuration.name, found.docker, found.doubt) == ("red", None, None)


async def test_a_configuration_is_found_without_the_engine(conf: Path, tmp_path: Path) -> None:
    """That the engine did not answer is reported."""
    found = await find(conf, Engine(f"unix://{tmp_path}/none", 1), "blue")
    assert found.configuration.name == "blue"
    assert "Docker network 'blue' is not known: Docker Engine at unix:" in str(found.doubt)
    with pytest.raises(Refused, match=r'no net configuration with name "pink".*; whether there is a Docker network'):
        await find(conf, Engine(f"unix://{tmp_path}/none", 1), "pink")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pink", r'no net configuration with name "pink".*; and there is no Docker network \'pink\''),
        ("foreign", r'no net configuration with name "foreign".*; Docker network foreign is of driver bridge, not of'),
        ("nameless", r'nameless was made without -o cni\.network, and there is no net configuration with name "nam'),
    ],
)
async def test_an_unknown_name_is_an_error(conf: Path, engine: Engine, name: str, message: str) -> None:
    """The error says what was searched, and where."""
    with pytest.raises(Refused, match=message):
        await find(conf, engine, name)


async def test_an_option_with_an_unknown_value_or_name_is_an_error(conf: Path, engine: Engine) -> None:
    """A configuration named by an option must exist, and an unknown option gives a suggestion."""
    with pytest.raises(ConfigurationNotFound, match='"gone"'):
        await find(conf, engine, "dangling")
    with pytest.raises(BadOption, match=r"did you mean cni\.ips"):
        await find(conf, engine, "by-option", ipz="1")
