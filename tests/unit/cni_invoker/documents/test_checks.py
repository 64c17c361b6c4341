# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which container IDs, names of networks, links and plugins, and arguments are valid, and the code of each error."""

import pytest

from cni_invoker.documents.checks import (
    check_argument,
    check_arguments,
    check_container_id,
    check_given_argument,
    check_ifname,
    check_netns,
    check_network_name,
    check_plugin_type,
)
from cni_invoker.errors import InvalidParameter

BAD_NAMES = ["1234%%%", "abc\n", "a/../b", "-a", ".a", "_a", "ä", "a b", "a\0"]


@pytest.mark.parametrize("name", ["eth0", "a", "0", "A.b-c_d", "a" * 300])
def test_valid_container_ids_and_network_names(name: str) -> None:
    """Letters, digits, '_', '.' and '-' are allowed after a first letter or digit, in any length."""
    check_container_id(name)
    check_network_name(name)


@pytest.mark.parametrize(("container_id", "code"), [("", 3), *((name, 4) for name in BAD_NAMES)])
def test_invalid_container_ids(container_id: str, code: int) -> None:
    """A missing container ID has code 3 (unknown container), an invalid one code 4 (invalid environment variable)."""
    with pytest.raises(InvalidParameter, match="container ID") as caught:
        check_container_id(container_id)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["", *BAD_NAMES])
def test_invalid_network_names(name: str) -> None:
    """An invalid network name has code 7 (invalid configuration)."""
    with pytest.raises(InvalidParameter, match="network name") as caught:
        check_network_name(name)
    assert caught.value.code == 7


@pytest.mark.parametrize("ifname", ["testname", "123456789012345", "eth0.100", "äöü", "a%d"])
def test_valid_interface_names(ifname: str) -> None:
    """Any name of up to 15 bytes that the kernel accepts is allowed."""
    check_ifname(ifname)


@pytest.mark.parametrize(
    "ifname",
    ["", "1234567890123456", "ääääääää", ".", "..", "test/test", "test:test", "test test", "a\n", "a\0", "\ud800"],
)
def test_invalid_interface_names(ifname: str) -> None:
    """Over 15 bytes, '.' and '..', slashes, colons and white space have code 4 (invalid environment variable)."""
    with pytest.raises(InvalidParameter) as caught:
        check_ifname(ifname)
    assert caught.value.code == 4


@pytest.mark.parametrize("plugin_type", ["bridge", "host-local", "calico-ipam", ".hidden", "with space"])
def test_valid_plugin_types(plugin_type: str) -> None:
    """A plugin type is a file name; any file name is allowed."""
    check_plugin_type(plugin_type)


@pytest.mark.parametrize("plugin_type", ["", ".", "..", "../bridge", "/bin/sh", "a/b", "a\0", "\ud800"])
def test_a_plugin_type_that_is_a_path_is_invalid(plugin_type: str) -> None:
    """A plugin is never searched outside the plugin directories; the error has code 7."""
    with pytest.raises(InvalidParameter) as caught:
        check_plugin_type(plugin_type)
    assert caught.value.code == 7


def test_a_relative_netns_is_refused_where_one_is_needed() -> None:
    """DEL may run in another directory; a record of another runtime may have one, and can be deleted."""
    for netns in ("netns/one", "./one", "../one"):
        with pytest.raises(InvalidParameter, match="give an absolute one") as caught:
            check_netns(netns, is_needed=True)
        assert caught.value.code == 4
        check_netns(netns)


def test_a_netns_with_a_nul_byte_is_invalid() -> None:
    """A path cannot contain a NUL byte; the empty path is left to the plugins."""
    check_netns("/run/netns/a b")
    check_netns("")
    with pytest.raises(InvalidParameter):
        check_netns("/run/netns/a\0b")


@pytest.mark.parametrize(("key", "value"), [("IP", "10.1.0.9"), ("EMPTY", "")])
def test_valid_arguments(key: str, value: str) -> None:
    """An argument has a key and a value, which may be empty."""
    check_argument(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [("", "a"), ("a=b", "c"), ("a", "b=c"), ("a;b", "c"), ("a", "b;c"), ("a", "\0")]
)
def test_arguments_that_cni_args_cannot_represent_are_invalid(key: str, value: str) -> None:
    """CNI_ARGS has no quoting: '=' or ';' in an argument, or an empty key, has code 4."""
    with pytest.raises(InvalidParameter) as caught:
        check_argument(key, value)
    assert caught.value.code == 4


def test_arguments_that_a_process_cannot_receive() -> None:
    """One environment variable has 128 KiB at most; the error has no value of them."""
    longest = 131_072 - len("CNI_ARGS=A=;B=1") - 1
    check_arguments([("A", "x" * longest), ("B", "1")])
    with pytest.raises(InvalidParameter, match=r"arguments 'A, B': together they have 131063 bytes") as caught:
        check_arguments([("A", "x" * (longest + 1)), ("B", "1")])
    assert caught.value.code == 4
    with pytest.raises(InvalidParameter, match="CNI argument"):
        check_arguments([("A", "1"), ("B", "a=b")])


@pytest.mark.parametrize(("key", "value"), [("", "a"), ("a=b", "c"), ("a;b", "c"), ("a", "b;c"), ("a", "\0")])
def test_stored_arguments_may_contain_an_equals_sign(key: str, value: str) -> None:
    """Other runtimes accept '=' in a value, so a stored one is valid; ';' or '=' in a key is not."""
    check_given_argument("a", "b=c")
    with pytest.raises(InvalidParameter) as caught:
        check_given_argument(key, value)
    assert caught.value.code == 4
