# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which container IDs, names, arguments and attachments are valid, and the code of each error."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cni_invoker import Attachment
from cni_invoker.documents.attachment import freeze_keys
from cni_invoker.documents.checks import (
    check_argument,
    check_arguments,
    check_container_id,
    check_ifname,
    check_netns,
    check_network_name,
    check_plugin_type,
)
from cni_invoker.errors import InvalidParameter

BAD_NAMES = ["1234%%%", "abc\n", "a/../b", "-a", ".a", "_a", "ä", "a b", "a\0"]
NAMES = ["eth0", "a", "0", "A.b-c_d", "a" * 300]


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (check_container_id, NAMES),
        (check_network_name, NAMES),
        (check_ifname, ["testname", "123456789012345", "eth0.100", "äöü", "a%d"]),
        (check_plugin_type, ["bridge", "host-local", "calico-ipam", ".hidden", "with space"]),
        (check_netns, ["/run/netns/a b", ""]),
    ],
)
def test_valid_values(check: Callable[[str], None], values: list[str]) -> None:
    """A name has letters, digits, '_', '.' and '-' after a first letter or digit; a plugin type is any file name."""
    for value in values:
        check(value)


@pytest.mark.parametrize(
    ("check", "code", "values"),
    [
        (check_container_id, 3, [""]),
        (check_container_id, 4, BAD_NAMES),
        (check_network_name, 7, ["", *BAD_NAMES]),
        (check_ifname, 4, ["", "1234567890123456", "ääääääää", ".", "..", "test/test", "test:test", "test test"]),
        (check_ifname, 4, ["a\n", "a\0", "\ud800"]),
        (check_plugin_type, 7, ["", ".", "..", "../bridge", "/bin/sh", "a/b", "a\0", "\ud800"]),
        (check_netns, 4, ["/run/netns/a\0b"]),
    ],
)
def test_invalid_values(check: Callable[[str], None], code: int, values: list[str]) -> None:
    """Each has the code of the specification: 3 for no container, 4 for a variable, 7 for the configuration."""
    for value in values:
        with pytest.raises(InvalidParameter) as caught:
            check(value)
        assert caught.value.code == code


def test_a_relative_netns_is_refused_where_one_is_needed() -> None:
    """DEL may run in another directory; a record of another runtime may have one, and can be deleted."""
    for netns in ("netns/one", "./one", "../one"):
        with pytest.raises(InvalidParameter, match="give an absolute one") as caught:
            check_netns(netns, is_needed=True)
        assert caught.value.code == 4
        check_netns(netns)


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
    check_argument("a", "b=c", of_others=True)
    with pytest.raises(InvalidParameter) as caught:
        check_argument(key, value, of_others=True)
    assert caught.value.code == 4


GOOD = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1", args=(("IP", "10.1.0.9"),))


@pytest.mark.parametrize(
    "make_bad",
    [
        lambda: replace(GOOD, container_id="some-%%"),
        lambda: replace(GOOD, container_id=""),
        lambda: replace(GOOD, ifname="a" * 16),
        lambda: replace(GOOD, netns="\0"),
        lambda: replace(GOOD, args=(("IP", "a;b"),)),
        lambda: replace(GOOD, capability_args={"bandwidth": {"ingressRate": float("nan")}}),
        lambda: replace(GOOD, capability_args={"bandwidth": {"ingressRate": float("inf")}}),
    ],
)
def test_an_invalid_attachment_cannot_be_made(make_bad: Callable[[], Attachment]) -> None:
    """Names, arguments and capability args are validated on construction, also of a copy."""
    with pytest.raises(InvalidParameter):
        make_bad()


def test_freeze_keys_removes_duplicates() -> None:
    """`freeze_keys` keeps the first of equal keys, in order, and iterates once, so a generator is allowed."""
    keys = [replace(GOOD, container_id=name).key for name in ("c2", "c1", "c2")]
    assert freeze_keys(key for key in keys) == (keys[0], keys[1])
    with pytest.raises(TypeError, match=r"AttachmentKey \(its `key`\), not as 'c1'"):
        freeze_keys([keys[0], "c1"])
