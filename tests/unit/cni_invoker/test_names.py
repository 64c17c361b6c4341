# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What may be a container ID, a name of a network or link, a plugin, an argument; and the CNI code of each refusal."""

import pytest

from cni_invoker.errors import InvalidParameter
from cni_invoker.names import (
    check_argument,
    check_container_id,
    check_given_argument,
    check_ifname,
    check_netns,
    check_network_name,
    check_plugin_type,
)

BAD_NAMES = ["1234%%%", "abc\n", "a/../b", "-a", ".a", "_a", "ä", "a b", "a\0"]


@pytest.mark.parametrize("name", ["eth0", "a", "0", "A.b-c_d", "a" * 300])
def test_names_of_letters_digits_and_three_marks_are_allowed(name: str) -> None:
    """Container IDs and network names follow the same pattern, of any length."""
    check_container_id(name)
    check_network_name(name)


@pytest.mark.parametrize(("container_id", "code"), [("", 3), *((name, 4) for name in BAD_NAMES)])
def test_bad_container_id(container_id: str, code: int) -> None:
    """A missing container ID is an unknown container (3), a bad one a bad variable (4)."""
    with pytest.raises(InvalidParameter) as caught:
        check_container_id(container_id)
    assert (caught.value.code, caught.value.value) == (code, container_id)


@pytest.mark.parametrize("name", ["", *BAD_NAMES])
def test_bad_network_name(name: str) -> None:
    """A bad network name is a bad configuration (7)."""
    with pytest.raises(InvalidParameter, match="network name") as caught:
        check_network_name(name)
    assert caught.value.code == 7


@pytest.mark.parametrize("ifname", ["testname", "123456789012345", "eth0.100", "äöü", "a%d"])
def test_interface_names_the_kernel_takes(ifname: str) -> None:
    """Anything of up to 15 bytes that the kernel takes is allowed."""
    check_ifname(ifname)


@pytest.mark.parametrize(
    "ifname",
    ["", "1234567890123456", "ääääääää", ".", "..", "test/test", "test:test", "test test", "a\n", "a\0", "\ud800"],
)
def test_interface_names_the_kernel_refuses(ifname: str) -> None:
    """More than 15 bytes, dots, slashes, colons and white space are refused as a bad variable (4)."""
    with pytest.raises(InvalidParameter) as caught:
        check_ifname(ifname)
    assert caught.value.code == 4


@pytest.mark.parametrize("plugin_type", ["bridge", "host-local", "calico-ipam", ".hidden", "with space"])
def test_a_plugin_is_the_name_of_a_file(plugin_type: str) -> None:
    """A plugin may be called like any file."""
    check_plugin_type(plugin_type)


@pytest.mark.parametrize("plugin_type", ["", ".", "..", "../bridge", "/bin/sh", "a/b", "a\0", "\ud800"])
def test_a_plugin_is_no_path(plugin_type: str) -> None:
    """A plugin is never looked for outside the plugin directories."""
    with pytest.raises(InvalidParameter) as caught:
        check_plugin_type(plugin_type)
    assert caught.value.code == 7


def test_a_namespace_is_a_path() -> None:
    """A path cannot have a NUL; an empty one is left to the plugins."""
    check_netns("/run/netns/a b")
    check_netns("")
    with pytest.raises(InvalidParameter):
        check_netns("/run/netns/a\0b")


@pytest.mark.parametrize(("key", "value"), [("IP", "10.1.0.9"), ("EMPTY", "")])
def test_arguments_are_pairs(key: str, value: str) -> None:
    """An argument has a key and a value, which may be empty."""
    check_argument(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [("", "a"), ("a=b", "c"), ("a", "b=c"), ("a;b", "c"), ("a", "b;c"), ("a", "\0")]
)
def test_arguments_know_no_quoting(key: str, value: str) -> None:
    """What would be read as several arguments, or as none, is refused as a bad variable (4)."""
    with pytest.raises(InvalidParameter) as caught:
        check_argument(key, value)
    assert caught.value.code == 4


@pytest.mark.parametrize(("key", "value"), [("", "a"), ("a=b", "c"), ("a;b", "c"), ("a", "b;c"), ("a", "\0")])
def test_what_nobody_can_have_given(key: str, value: str) -> None:
    """A value with '=' was possible elsewhere; a second pair in a value, or in a key, was not."""
    check_given_argument("a", "b=c")
    with pytest.raises(InvalidParameter) as caught:
        check_given_argument(key, value)
    assert caught.value.code == 4
