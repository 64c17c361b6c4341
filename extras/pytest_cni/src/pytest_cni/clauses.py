# SPDX-License-Identifier: Apache-2.0
"""What the CNI specification asks of a plugin; each test is one clause, with its section."""

import pytest

from cni_invoker import JsonObject, Result
from pytest_cni.executable import Plugin
from pytest_cni.plugin import Container

_INCOMPATIBLE, _INVALID_ENVIRONMENT, _DECODING = 1, 4, 6
_NOT_AVAILABLE = (50, 51)
_ROUNDS = 8


def test_version(cni_plugin: Plugin) -> None:
    """VERSION needs nothing but CNI_COMMAND and `cniVersion`, and answers with the supported versions (§2)."""
    for version in cni_plugin.versions:
        ended = cni_plugin.execute("VERSION", version, stdin=f'{{"cniVersion": "{version}"}}')
        ended.succeeded()
        answer = ended.document()
        if not isinstance(answer.get("cniVersion"), str) or not isinstance(answer.get("supportedVersions"), list):
            ended.fail("the answer needs cniVersion, a string, and supportedVersions, a list")


def test_unknown_version(cni_container: Container) -> None:
    """A `cniVersion` that the plugin does not support is an error with code 1 (§1, §5)."""
    cni_container.version = "99.0.0"
    cni_container.execute("ADD").error(_INCOMPATIBLE)
    cni_container.version = cni_container.plugin.versions[-1]


def test_input_that_is_not_json(cni_plugin: Plugin, cni_container: Container, cni_version: str) -> None:
    """It is an error of the form of the specification, with code 6 (§5)."""
    cni_plugin.execute("ADD", cni_version, stdin="{", env=cni_container.variables).error(_DECODING)


@pytest.mark.parametrize("name", ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"])
def test_missing_variable(cni_container: Container, name: str) -> None:
    """ADD without a required variable is an error with code 4 that names the variable (§2, §5)."""
    ended = cni_container.execute("ADD", without=name)
    error = ended.error(_INVALID_ENVIRONMENT)
    if name not in f"{error['msg']} {error.get('details', '')}":
        ended.fail(f"the error does not name {name}")


def test_unknown_command(cni_plugin: Plugin, cni_version: str) -> None:
    """A CNI_COMMAND that does not exist is an error (§2)."""
    cni_plugin.execute("FROBNICATE", cni_version).error()


def test_add(cni_container: Container) -> None:
    """ADD prints a valid result in the version of the configuration, for each supported version (§2, §5)."""
    for version in cni_container.plugin.versions:
        cni_container.version = version
        cni_container.execute("ADD").result()
        cni_container.execute("DEL").succeeded()


def test_interface(cni_container: Container) -> None:
    """The interface has the addresses of the result; an IPAM plugin makes no interface (§2, §5)."""
    ended = cni_container.execute("ADD")
    result = ended.result()
    if cni_container.plugin.is_ipam:
        if result.interfaces or not result.ips:
            ended.fail("the result of an IPAM plugin has addresses, and no interfaces")
        return
    if not cni_container.has_interface():
        ended.fail("there is no interface eth0 in the container")
    if lacking := [one for one in _addresses(result) if one not in cni_container.ip("address", "show", "dev", "eth0")]:
        ended.fail(f"eth0 does not have {', '.join(lacking)}, which the result has")
    if result.interfaces and not any(one.name == "eth0" and one.sandbox for one in result.interfaces):
        ended.fail("the result has interfaces, but not eth0 with its sandbox")


def test_delete(cni_container: Container) -> None:
    """After DEL the interface is gone, and the same can be added again (§2)."""
    for _ in range(2):
        printed = cni_container.execute("ADD")
        result = printed.result()
        ended = cni_container.execute("DEL", after=result)
        ended.succeeded()
        if not cni_container.plugin.is_ipam and cni_container.has_interface():
            ended.fail("eth0 is still in the container")


def test_repeated_delete(cni_container: Container) -> None:
    """DEL succeeds if what it should delete is missing (§2)."""
    cni_container.execute("ADD").result()
    for _ in range(2):
        cni_container.execute("DEL").succeeded()


def test_delete_of_what_was_never_added(cni_container: Container) -> None:
    """DEL succeeds: a runtime calls it after an ADD that failed or never ran (§2)."""
    cni_container.execute("DEL").succeeded()


def test_delete_without_namespace(cni_container: Container) -> None:
    """DEL needs no CNI_NETNS, and succeeds if the namespace is gone: the container may have ended (§2)."""
    cni_container.execute("ADD").result()
    netns, cni_container.netns = cni_container.netns, "/proc/0/ns/net"
    cni_container.execute("DEL").succeeded()
    cni_container.execute("DEL", without="CNI_NETNS").succeeded()
    cni_container.netns = netns


def test_repeated_adds_leave_no_address(cni_container: Container) -> None:
    """DEL frees what ADD has reserved, so a small range is never used up (§2). Give --cni-config such a range."""
    for _ in range(_ROUNDS):
        cni_container.execute("ADD").result()
        cni_container.execute("DEL").succeeded()


@pytest.mark.usefixtures("needs_check")
def test_check(cni_container: Container) -> None:
    """CHECK after ADD succeeds (§2)."""
    result = cni_container.execute("ADD").result()
    cni_container.execute("CHECK", after=result).succeeded()


@pytest.mark.usefixtures("needs_check")
def test_check_finds_what_is_missing(cni_container: Container) -> None:
    """CHECK fails if the interface is gone, or for an IPAM plugin the reservation (§2)."""
    result = cni_container.execute("ADD").result()
    if cni_container.plugin.is_ipam:
        cni_container.execute("DEL").succeeded()
    else:
        cni_container.ip("link", "delete", "dev", "eth0")
    cni_container.execute("CHECK", after=result).error()


@pytest.mark.usefixtures("needs_gc")
def test_status(cni_plugin: Plugin, cni_version: str) -> None:
    """STATUS succeeds without a container, or is an error with code 50 or 51 (§2, §5)."""
    ended = cni_plugin.execute("STATUS", cni_version)
    if ended.status != 0:
        ended.error(*_NOT_AVAILABLE)


@pytest.mark.usefixtures("needs_gc")
def test_gc(cni_container: Container) -> None:
    """GC keeps the valid attachments (§2)."""
    result = cni_container.execute("ADD").result()
    variables = cni_container.variables
    valid: list[JsonObject] = [{"containerID": variables["CNI_CONTAINERID"], "ifname": variables["CNI_IFNAME"]}]
    for one in (valid, [*valid, {"containerID": "another", "ifname": "eth0"}]):
        cni_container.plugin.execute("GC", cni_container.version, keys={"cni.dev/valid-attachments": one}).succeeded()
    cni_container.execute("CHECK", after=result).succeeded()


def _addresses(result: Result) -> list[str]:
    return [str(address) for address in result.addresses_of("eth0")]
