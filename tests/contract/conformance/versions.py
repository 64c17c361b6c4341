# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about versions: how they compare, which ones a plugin supports, and which one is used for a list."""

from collections.abc import Mapping
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_list, get_object, get_str, get_strings
from cni_invoker import NetworkConfigurationList, run_preflight
from cni_invoker.documents.versions import is_at_least, parse_version
from cni_invoker.errors import BadConfiguration, BadResult, InvalidParameter, NoCommonVersion
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network, three_plugins

__all__ = ["RUNNERS"]


async def comparison(case: Case, _: Scene) -> None:
    """Versions compare by number; an invalid one is refused; an empty one is the first."""
    for pair in get_list(case.inputs, "pairs_first_ge_second"):
        assert isinstance(pair, list)
        newer, older = map(str, pair)
        assert is_at_least(newer, older)
        assert is_at_least(newer, newer)
        assert not is_at_least(older, newer)
    for text in get_strings(case.inputs, "malformed"):
        with pytest.raises(InvalidParameter):
            parse_version(text)
    assert parse_version(get_str(case.inputs, "empty")) == parse_version(get_str(case.expect, "empty"))


async def probe(case: Case, scene: Scene) -> None:
    """VERSION has an environment of its own, and the newest version of ours as input."""
    scene.install("foo", VERSION={"supportedVersions": ["1.0.0"]})
    assert (await scene.runtime().version("foo")).supported == ("1.0.0",)
    (command,) = scene.plugins.commands
    assert get_object(case.expect, "env").items() <= command.environment.items()
    assert command.stdin == get_object(case.expect, "stdin")


async def bad_answer(case: Case, scene: Scene) -> None:
    """The error for an invalid answer to VERSION names the plugin."""
    stdout = case.inputs["stdout"]
    scene.install("foo", VERSION={"stdout": stdout} if isinstance(stdout, str) else {"result": stdout})
    with pytest.raises(BadResult) as caught:
        await scene.runtime().version("foo")
    assert caught.value.plugin == "foo"
    case.expects("error_text" if "error_text" in case.expect else "error_prefix", str(caught.value))


async def before_version(case: Case, scene: Scene) -> None:
    """A plugin without VERSION supports the first specification."""
    error = {"code": 100, **get_object(case.plugin, "error")}
    scene.install("foo", VERSION={"error": error})
    assert (await scene.runtime().version("foo")).supported == get_strings(case.expect, "supported")


async def historical(case: Case, scene: Scene) -> None:
    """The supported versions of plugins of all ages are understood."""
    old: JsonObject = {"cniVersion": "0.2.0"}
    answers: dict[str, JsonObject] = {
        "pre-VERSION": {"error": {"code": 100, "msg": "unknown CNI_COMMAND: VERSION"}},
        "no custom list": {"result": old},
        "custom": {"result": {**old, "supportedVersions": ["0.2.0", "0.999.0"]}},
        "current": {"result": {**old, "supportedVersions": ["0.2.0", "0.4.0", "0.999.0"]}},
    }
    assert set(answers) == set(case.expect)
    runtime = scene.runtime()
    for age, answer in answers.items():
        plugin_type = age.replace(" ", "-")
        scene.install(plugin_type, VERSION=answer)
        assert (await runtime.version(plugin_type)).supported == get_strings(case.expect, age)


async def validation(case: Case, scene: Scene) -> None:
    """A version that a plugin does not support is reported; a list with an invalid version is refused."""
    scene.install("noop", VERSION={"supportedVersions": ["0.1.0", "1.1.0"]})
    for version, wanted in (("1.1.0", case.expect["current"]), ("", "ok")):
        report = await run_preflight(scene.runtime(), network({"type": "noop"}, version=version))
        assert wanted == "ok"
        assert (report.is_good, report.cni_version) == (True, version or "0.1.0")
    with pytest.raises(BadConfiguration) as caught:
        network({"type": "noop"}, version="broken")
    case.expects("broken", str(caught.value))
    report = await run_preflight(scene.runtime(), network({"type": "noop"}, version="0.999.0"))
    assert 'plugin noop does not support config version "0.999.0"' in " ".join(report.all_problems)


async def whole_list(case: Case, scene: Scene) -> None:
    """All problems of a list are reported at once, and all capabilities of its plugins.

    A plugin that does not report the list's only version is a warning here: `libcni.AddNetworkList` runs it.
    """
    assert case.expect["all_errors_reported"] is True
    scene.install("noop", VERSION={"supportedVersions": ["1.1.0"]})
    scene.install("old", VERSION={"supportedVersions": ["0.1.0"]})
    plugins: JsonValue = [
        {"type": "noop", "capabilities": {"portMappings": True, "noCapability": False}},
        {"type": "old", "capabilities": {"otherCapability": True}},
        {"type": "unknown"},
    ]
    report = await run_preflight(scene.runtime(), three_plugins("1.1.0", {"plugins": plugins}))
    assert [warning.partition(":")[0] for warning in report.all_warnings] == ["old"]
    assert [problem.partition(":")[0] for problem in report.all_problems] == ["unknown"]
    assert set(report.capabilities) == set(get_strings(case.expect, "capabilities_union"))
    assert [verb for _, verb in scene.plugins.calls] == ["VERSION"] * 2


async def negotiation(case: Case, scene: Scene) -> None:
    """The newest version that all plugins, also IPAM plugins, support is chosen; without one, the error lists them."""
    supported = list(get_strings(case.plugin, "supportedVersions"))
    scene.install("new")
    scene.install("debian", VERSION={"supportedVersions": supported})
    runtime = scene.runtime()
    document: JsonObject = {"name": "n", "cniVersions": case.inputs["cniVersions"]}
    lists: list[list[JsonValue]] = [
        [{"type": "debian"}],
        [{"type": "new"}, {"type": "new", "ipam": {"type": "debian"}}],
    ]
    for plugins in lists:
        wanted = NetworkConfigurationList.from_document({**document, "plugins": plugins})
        negotiated = await runtime.negotiate(wanted)
        assert negotiated.cni_version == case.inputs["plugins_support_max"]
        assert NetworkConfigurationList.from_document(negotiated.document).cni_version == negotiated.cni_version
        await runtime.add(negotiated, ATTACHMENT)
    assert {str(stdin["cniVersion"]) for stdin in scene.stdins} == {"1.0.0"}
    assert [command.verb for command in scene.plugins.commands].count("VERSION") == 2  # each once
    scene.install("old", VERSION={"supportedVersions": ["0.2.0"]})
    mixed = NetworkConfigurationList.from_document({**document, "plugins": [{"type": "old"}, {"type": "debian"}]})
    with pytest.raises(NoCommonVersion, match=r"old.*0\.2\.0"):
        await runtime.negotiate(mixed)


RUNNERS: Final[Mapping[str, Runner]] = {
    "ver-007": comparison,
    "ver-008": probe,
    **dict.fromkeys(("ver-010", "ver-011"), bad_answer),
    "ver-013": before_version,
    "ver-014": historical,
    "ver-015": validation,
    "ver-016": whole_list,
    "ver-017": negotiation,
}
