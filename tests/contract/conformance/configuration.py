# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about configuration files: which one is found, what it means, which version it requires."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_str, get_object, get_str
from cni_invoker import CniError, ConfigurationDirectories, NetworkConfigurationList, read_configuration
from cni_invoker.errors import BadConfiguration, ConfigurationNotFound
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network

__all__ = ["RUNNERS"]


def _files(inputs: JsonObject) -> Mapping[str, JsonValue]:
    """Return the files of a case, with plugins in place of the remark `three plugins` or of a missing list."""
    files: dict[str, JsonValue] = {}
    for name, document in get_object(inputs, "files").items():
        found = dict(as_object(document, name))
        if found.get("plugins") == ["three plugins"] or (name.endswith(".conflist") and "plugins" not in found):
            found["plugins"] = [{"type": "one"}, {"type": "two"}, {"type": "three"}]
        files[name] = found
    return files


def _list_files(inputs: JsonObject) -> Mapping[str, JsonValue]:
    """Return the only list of a case, called `00.conflist`, and the files of its subdirectory."""
    wanted = dict(get_object(inputs, "list"))
    wanted.setdefault("name", "some-network")
    if set(wanted) <= {"name", "disableCheck"}:  # the case is about this key alone
        wanted["plugins"] = [{"type": "foo"}]
    subdir = inputs.get("subdir")
    return {"00.conflist": wanted, **(as_object(subdir, "subdir") if isinstance(subdir, dict) else {})}


def _types(found: NetworkConfigurationList) -> tuple[str, ...]:
    return tuple(plugin.type for plugin in found.plugins)


async def no_directory(case: Case, scene: Scene) -> None:
    """A missing directory has no configurations."""
    with pytest.raises(ConfigurationNotFound) as caught:
        ConfigurationDirectories([scene.configurations]).index().require_any()
    case.expects("error_text", str(caught.value), dir=scene.configurations)


async def lookup(case: Case, scene: Scene) -> None:
    """A network is looked up among files, and its list is compared with the expected keys."""
    files = _files(case.inputs)
    index = scene.configure(files).index()
    name = get_str(case.inputs, "lookup")
    if case.expect.get("error") == "NotFound":
        with pytest.raises(ConfigurationNotFound):
            index.find(name)
        return
    found = index.find(name)
    assert found.source is not None
    chosen = found.source.name
    source = as_object(files[chosen], chosen)
    for key, wanted in case.expect.items():
        match key:
            case "name":
                assert found.name == wanted
            case "cniVersion":
                assert found.cni_version == wanted
            case "disableCheck":
                assert found.disable_check is wanted
            case "plugin_types":
                assert list(_types(found)) == wanted
            case "plugin_count":
                assert len(found.plugins) == wanted
            case "chosen_file":
                assert chosen == wanted
            case "unknown_fields_preserved":
                assert [plugin.document for plugin in found.plugins] == source["plugins"]
                assert found.document == source
            case _:
                raise AssertionError(f"the key {key} is not compared")


async def bad_file(case: Case, scene: Scene) -> None:
    """A file is refused, whether it is opened by name or found in its directory, and others are still found."""
    files = _files(case.inputs)
    (name,) = files
    good: JsonValue = {"name": "good", "plugins": [{"type": "foo"}]}
    index = scene.configure({**files, "99.conflist": good}).index()
    with pytest.raises(BadConfiguration) as caught:
        read_configuration(scene.configurations / name)
    assert [str(problem) for problem in index.problems] == [str(caught.value)]
    assert index.names == ("good",)
    case.expects("error_text", str(caught.value), file=scene.configurations / name)


async def unreadable(case: Case, _: Scene) -> None:
    """The error for a file that cannot be opened has its path."""
    path = Path(get_str(case.inputs, "open"))
    with pytest.raises(BadConfiguration) as caught:
        read_configuration(path)
    case.expects("error_prefix", str(caught.value), file=path)


async def good_list(case: Case, scene: Scene) -> None:
    """A list, with the files in the directory of its network's name, has the expected meaning."""
    found = scene.configure(_list_files(case.inputs)).index().find("some-network")
    match case.expect:
        case {"disableCheck": wanted}:
            assert found.disable_check is wanted
        case {"loadOnlyInlinedPlugins": True}:
            assert _types(found) == ("host-local",)
        case {"plugin_types": list(wanted)}:
            assert list(_types(found)) == wanted
        case _:
            raise AssertionError(f"{case.expect} is not compared")


async def bad_list(case: Case, scene: Scene) -> None:
    """A list is refused, with or without plugins in its subdirectory."""
    files = _list_files(case.inputs)
    for added in ({}, {"some-network/more.conf": {"type": "more"}, "x/more.conf": {"type": "more"}}):
        (problem,) = scene.configure({**files, **added}).index().problems
        key = "error_text" if "error_text" in case.expect else "error"
        case.expects(key, str(problem), file=scene.configurations / "00.conflist")


async def required_version(case: Case, scene: Scene) -> None:
    """A list selects one of its versions."""
    document = get_object(case.inputs, "list")
    if case.expect.get("error") is True:
        with pytest.raises(BadConfiguration, match=r"1\.0\.f"):
            NetworkConfigurationList.from_document(document)
        return
    found = NetworkConfigurationList.from_document(document)
    assert found.cni_version == (get_str(case.expect, "selected") or "0.1.0")
    scene.install("foo")
    if found.cni_version == "1.2.3":  # kept as it is, and refused when it is used
        with pytest.raises(CniError, match=r"1\.2\.3"):
            await scene.runtime().add(found, ATTACHMENT)
        assert scene.calls == ()
    else:
        await scene.runtime().add(found, ATTACHMENT)
        assert scene.stdins[-1]["cniVersion"] == found.cni_version


async def injection(case: Case, scene: Scene) -> None:
    """Keys that the runtime injects into a plugin's configuration are added, or replace existing ones.

    libcni has a public call for it; here only the runtime does it.
    """
    assert {"new key": "added", "existing key": "replaced"}.items() <= case.expect.items()
    scene.install("foo")
    plugin: JsonValue = {
        "type": "foo",
        "name": "other",
        "runtimeConfig": "from the file",
        "capabilities": {"portMappings": True},
    }
    await scene.runtime().add(network(plugin), ATTACHMENT)
    assert scene.stdins[0] == {
        "type": "foo",
        "name": "some-list",
        "cniVersion": "1.1.0",
        "runtimeConfig": ATTACHMENT.capability_args,
    }


async def numbers(case: Case, scene: Scene) -> None:
    """Numbers, the order of keys and non-ASCII letters reach the plugin as the file has them."""
    number = case.inputs["config_number"]
    assert isinstance(number, int)
    assert find_str(case.expect, "improved") == "number preserved exactly"
    plugin: JsonValue = {"type": "foo", "zeta": number, "alpha": "Grüße <&>", "real": 0.1}
    scene.configure({"00.conflist": {"name": "n", "cniVersion": "1.1.0", "plugins": [plugin]}})
    scene.install("foo")
    await scene.runtime().add(read_configuration(scene.configurations / "00.conflist"), ATTACHMENT)
    stdin = scene.stdins[0]
    assert list(stdin)[:4] == ["type", "zeta", "alpha", "real"]
    assert [stdin[key] for key in ("zeta", "alpha", "real")] == [number, "Grüße <&>", 0.1]


RUNNERS: Final[Mapping[str, Runner]] = {
    "disc-001": no_directory,
    **dict.fromkeys(("disc-003", "disc-004", "disc-006", "disc-007"), lookup),
    "disc-009": bad_file,
    "disc-010": unreadable,
    **dict.fromkeys(("disc-012", "disc-015", "disc-018", "disc-020", "disc-021"), good_list),
    **dict.fromkeys(("disc-014", "disc-017", "disc-023", "disc-025"), bad_list),
    **dict.fromkeys(("ver-001", "ver-003", "ver-004", "ver-006"), required_version),
    "stdin-006": injection,
    "stdin-007": numbers,
}
