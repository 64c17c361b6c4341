# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a name stands for: a Docker network of this driver with its options, or a CNI configuration."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.operator.cli.commands.explain import ExplainedNetwork, find_explained_network
from cnm_bridge.system.engine import Engine
from tests.answering_engine import answering

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
