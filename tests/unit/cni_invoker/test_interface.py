# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What programs may rely on: which names are public, and what they refuse."""

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import cni_invoker
from cni_invoker import CachedRuntime, FileCache, Result, Runtime, advanced, sync
from cni_invoker.errors import NotAttached, PluginFailed
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, FAILED, LIMITS, RESULT, THREE, without_version

STABLE: Final = [
    import_module(name) for name in ("cni_invoker", "cni_invoker.sync", "cni_invoker.errors", "cni_invoker.plugin")
]
ONLY_FOR_TASKS: Final = {"slot", "hooks"}
"""Parameters for programs that have tasks of their own; `hooks` is one of `advanced`."""


def names(module: ModuleType) -> dict[str, object]:
    """Return the public names of a module."""
    return {name: getattr(module, name) for name in module.__all__}


def functions(value: object) -> Iterator[Callable[..., object]]:
    """Yield a function, or the public methods and properties of a class."""
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value):
        for name, member in vars(value).items():
            found = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            found = getattr(found, "__wrapped__", getattr(found, "func", found))
            if inspect.isfunction(found) and (not name.startswith("_") or name == "__init__"):
                yield found


def classes_in(annotation: object) -> Iterator[type]:
    """Yield the classes of this package that a type consists of."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("cni_invoker"):
        yield annotation
    for part in typing.get_args(annotation):
        yield from classes_in(part) if not isinstance(part, list) else (one for p in part for one in classes_in(p))


def hints(function: Callable[..., object]) -> dict[str, object]:
    """Return the types of a function's parameters and of what it returns."""
    scope: dict[str, Any] = {**vars(typing), **vars(sys.modules["collections.abc"])}
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("cni_invoker"):
            scope |= {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    inner = inspect.getmodule(function)
    scope |= {"Path": Path, "Runner": object, **names(cni_invoker), **vars(inner)}
    return typing.get_type_hints(function, scope)


@pytest.mark.parametrize("module", STABLE, ids=lambda module: module.__name__)
def test_stable_names_need_stable_names_only(module: ModuleType) -> None:
    """No parameter, result or attribute has a type that only `advanced`, or an inner module, has."""
    public = {value for one in STABLE for value in names(one).values() if inspect.isclass(value)}
    missing = set()
    for name, value in names(module).items():
        parts = [(function.__qualname__, hints(function)) for function in functions(value)]
        if inspect.isclass(value) and dataclasses.is_dataclass(value):
            parts.append((name, {field.name: field.type for field in dataclasses.fields(value)}))
        for where, found in parts:
            for what, annotation in found.items():
                if what not in ONLY_FOR_TASKS:
                    missing |= {f"{where}: {one.__name__}" for one in classes_in(annotation) if one not in public}
    assert not missing


def test_advanced_has_no_stable_names() -> None:
    """Each name has one place."""
    stable = {name for module in STABLE for name in module.__all__}
    assert not stable & set(advanced.__all__)


@pytest.fixture(name="opened")
def make_opened(plugins: FakePlugins, tmp_path: Path) -> sync.CachedRuntime:
    """A runtime as most programs make it."""
    return sync.CachedRuntime(
        CachedRuntime.open(plugins.directory, tmp_path / "cache", LIMITS, lock_dir=tmp_path / "lock")
    )


def test_the_safe_constructor(opened: sync.CachedRuntime, plugins: FakePlugins, tmp_path: Path) -> None:
    """Running plugins are recorded while they run, first users of iptables are locked, attachments are in files."""
    gate = tmp_path / "gate"
    gate.touch()
    plugins.install("firewall", ADD={"result": RESULT})
    network = cni_invoker.NetworkConfigurationList.from_document(
        {"name": "blue", "cniVersion": "1.0.0", "plugins": [{"type": "firewall"}]}
    )
    opened.add(network, ATTACHMENT)
    assert (tmp_path / "cache/running").is_dir()
    assert list((tmp_path / "lock").iterdir()) == [tmp_path / "lock/shared-chains.lock"]
    another = sync.CachedRuntime(CachedRuntime(Runtime("/x"), FileCache(tmp_path / "cache")))
    assert [one.attachment for one in another.attachments()] == [ATTACHMENT]


def test_the_defaults_of_the_safe_constructor() -> None:
    """Both are those that other programs of the host use."""
    defaults = inspect.signature(CachedRuntime.open).parameters
    assert defaults["cache_dir"].default == cni_invoker.DEFAULT_CACHE_DIR == Path("/var/lib/cni")
    assert defaults["lock_dir"].default == cni_invoker.DEFAULT_LOCK_DIR == Path("/run/cni-invoker")


def test_a_check_of_the_record_alone(opened: sync.CachedRuntime, plugins: FakePlugins) -> None:
    """It needs neither the list nor the arguments."""
    opened.add(THREE, ATTACHMENT)
    (cached,) = opened.attachments()
    opened.check_cached(cached)
    assert [verb for _, verb in without_version(plugins)[-3:]] == ["CHECK"] * 3
    opened.delete_cached(cached)
    with pytest.raises(NotAttached):
        opened.check_cached(cached)


def test_a_result_cannot_be_changed() -> None:
    """Neither through the document that it was made from, nor through the one that it gives."""
    given: dict[str, Any] = {**RESULT, "ips": [{"address": "10.1.2.3/24"}]}
    result = Result.from_document(given)
    given["ips"].clear()
    document: Any = result.document
    document["ips"][0]["address"] = "10.6.6.6/24"
    document["dns"] = {}
    assert result.document == RESULT
    assert result == Result.from_document(RESULT)


def test_a_failure_names_network_and_container(opened: sync.CachedRuntime, plugins: FakePlugins) -> None:
    """A program that logs the error alone can be understood."""
    plugins.install("second", ADD=FAILED)
    with pytest.raises(PluginFailed, match="network some-list, container some-container-id") as caught:
        opened.add(THREE, ATTACHMENT)
    assert (caught.value.network, caught.value.container_id) == ("some-list", "some-container-id")
