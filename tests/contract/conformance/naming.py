# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about names, and about finding a plugin by its name."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import get_object, get_str, get_strings
from cni_invoker import CniError, NetworkConfigurationList
from cni_invoker.documents.checks import check_container_id, check_network_name, check_plugin_type
from cni_invoker.errors import BadConfiguration, InvalidParameter, PluginNotFound
from cni_invoker.execution.answer import find_plugin
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network

__all__ = ["RUNNERS"]


async def network_names(case: Case, _: Scene) -> None:
    """A name is accepted, or refused with a code; a list with a refused name cannot be made."""
    for name, code in get_object(case.inputs, "network_names").items():
        if code is None:
            check_network_name(name)
            assert network({"type": "foo"}, name=name).name == name
            continue
        with pytest.raises(InvalidParameter) as caught:
            check_network_name(name)
        assert caught.value.code == code
        with pytest.raises(BadConfiguration) as refused:
            network({"type": "foo"}, name=name)
        assert refused.value.code == code


async def ifnames(case: Case, _: Scene) -> None:
    """A name is accepted, or refused with a code; an attachment with a refused name cannot be made."""
    for ifname, code in get_object(case.inputs, "ifnames").items():
        if code is None:
            assert replace(ATTACHMENT, ifname=ifname).ifname == ifname
            continue
        with pytest.raises(InvalidParameter) as caught:
            replace(ATTACHMENT, ifname=ifname)
        assert caught.value.code == code
    with pytest.raises(InvalidParameter):  # 8 letters, 16 bytes
        replace(ATTACHMENT, ifname="ä" * 8)


async def strange_names(case: Case, _: Scene) -> None:
    """Names that a looser pattern would accept are refused; the length is not limited."""
    assert case.expect["all"] == "rejected except the long one"
    for name in get_strings(case.inputs, "names"):
        if len(name) > 100:
            check_network_name(name)
            check_container_id(name)
            continue
        with pytest.raises(InvalidParameter):
            check_network_name(name)
        with pytest.raises(InvalidParameter):
            check_container_id(name)


async def order_of_checks(case: Case, scene: Scene) -> None:
    """No plugin runs for an invalid ID, or if a plugin is missing.

    libcni looks for the plugin first. Here an attachment with an invalid ID cannot be made.
    """
    assert case.given == "missing plugin AND bad container id"
    with pytest.raises(InvalidParameter) as caught:
        replace(ATTACHMENT, container_id="some-%%-container-id")
    case.expects("first_error", str(caught.value))
    scene.install("one")
    with pytest.raises(PluginNotFound, match='failed to find plugin "two"'):
        await scene.runtime().add(network({"type": "one"}, {"type": "two"}), ATTACHMENT)
    assert scene.calls == ()


async def second_directory(_: Case, scene: Scene) -> None:
    """The first directory that has the plugin is used."""
    empty = scene.directory / "empty"
    empty.mkdir()
    path = scene.plugins.install("foo")
    assert find_plugin("foo", [empty, scene.directory / "absent", path.parent]) == path


async def no_type(case: Case, _: Scene) -> None:
    """A plugin without a name is refused."""
    with pytest.raises(InvalidParameter) as caught:
        check_plugin_type(get_str(case.inputs, "type"))
    case.expects("error_text", str(caught.value))
    with pytest.raises(BadConfiguration):
        NetworkConfigurationList.from_document({"name": "n", "plugins": [{"type": ""}]})


async def absent(case: Case, scene: Scene) -> None:
    """The error for a missing plugin has the searched directories."""
    directories = [scene.directory / "first", scene.directory / "second"]
    with pytest.raises(PluginNotFound) as caught:
        find_plugin(get_str(case.inputs, "type"), directories)
    case.expects("error_text", str(caught.value), dirs=", ".join(map(str, directories)))


async def no_file(_: Case, scene: Scene) -> None:
    """Only a regular file, or a symbolic link to one, is a plugin."""
    path = scene.plugins.install("foo")
    directories = [scene.directory / kind for kind in ("folder", "pipe", "link")]
    for directory in directories:
        directory.mkdir()
    folder, pipe, link = (directory / "foo" for directory in directories)
    folder.mkdir()
    os.mkfifo(pipe, 0o755)
    link.symlink_to(path)
    assert find_plugin("foo", [*directories[:2], path.parent]) == path
    assert find_plugin("foo", [*directories[:2], link.parent]) == link


async def not_executable(_: Case, scene: Scene) -> None:
    """A file that is not executable is an error before anything runs, unless a later directory has the plugin."""
    path = scene.plugins.install("foo")
    path.chmod(0o644)
    with pytest.raises(CniError, match="not executable") as caught:
        find_plugin("foo", [path.parent])
    assert str(path) in str(caught.value)
    further = scene.directory / "further"
    further.mkdir()
    (further / "foo").write_bytes(path.read_bytes())
    (further / "foo").chmod(0o755)
    assert find_plugin("foo", [path.parent, further]) == further / "foo"


RUNNERS: Final[Mapping[str, Runner]] = {
    "name-001": network_names,
    "name-003": ifnames,
    "name-004": strange_names,
    "name-005": order_of_checks,
    "find-001": second_directory,
    "find-003": no_type,
    "find-004": absent,
    "find-006": no_file,
    "find-007": not_executable,
}
