# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cases in which cni_invoker is deliberately different from libcni, and those in which others are better for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DIVERGENCES", "IMPROVED_ELSEWHERE", "Divergence", "Elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One difference.

    Attributes:
        ours: What we say in place of libcni's words; `{dir}` stands for a path. Empty where it is no matter of words.
        reason: Why.
    """

    ours: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Where something is better than in libcni, though not where its case asks for it.

    Attributes:
        place: The definition that makes it better, as `file::name`.
        test: The test that shows it, as `file::name`.
        reason: Why there.
    """

    place: str
    test: str
    reason: str


_PLACE: Final = "the message begins with the file that is wrong, which libcni does not tell, and not with its parser"

DIVERGENCES: Final[Mapping[str, Divergence]] = {
    "disc-001": Divergence(
        ours="no network configuration in {dir}; there are: none",
        reason="the message is that of any network that is not found: it also tells what there is, and what is broken",
    ),
    "disc-009": Divergence(ours="{file}: 'type' is a required property", reason=f"a schema finds it, and {_PLACE}"),
    "disc-010": Divergence(ours="{file}: error reading it: No such file or directory", reason=_PLACE),
    "disc-014": Divergence(ours='{file}: invalid value "adsfasdfasf" for disableCheck', reason=_PLACE),
    "disc-017": Divergence(
        ours="{file}: `loadOnlyInlinedPlugins` is true, and no 'plugins' key", reason=f"same words, but {_PLACE}"
    ),
    "disc-023": Divergence(ours="{file}: no plugins in list", reason=f"same words, but {_PLACE}"),
    "disc-025": Divergence(ours="{file}: name: 5 is not of type 'string'", reason=f"a schema finds it, and {_PLACE}"),
    "ver-006": Divergence(
        ours="", reason="a list without any version is said to be of 0.1.0, which is what an empty one means"
    ),
    "ver-015": Divergence(
        ours="invalid CNI version 'broken': it is not of the form 1.0.0",
        reason="what is no version at all is found when the list is read, before any plugin is asked",
    ),
    "name-005": Divergence(
        ours="invalid container ID 'some-%%-container-id'",
        reason="an attachment with a bad ID cannot even be made, so that this comes before the search for plugins",
    ),
    "stdin-006": Divergence(
        ours="", reason="there is no call that injects keys, so none with an empty key or a null value to be refused"
    ),
    "cache-003": Divergence(
        ours="invalid network name ''", reason="a name that is missing breaks the rule for names, and is told as that"
    ),
    "err-003": Divergence(
        ours='plugin type="foo" failed (add): no error message (code 999, exit status 1 after',
        reason="the message has the same facts, and plugin, verb, duration and path as well",
    ),
}

IMPROVED_ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "env-004": Elsewhere(
        place="cni_invoker/names.py::check_argument",
        test="tests/unit/cni_invoker/test_names.py::test_arguments_know_no_quoting",
        reason="bad arguments are refused; IgnoreUnknown is not added, since there are no keys but those of the caller",
    ),
    "del-012": Elsewhere(
        place="cnm_bridge/teardown/teardown.py::Teardown",
        test="tests/kernel/test_link_mover_bring_back.py::test_neither_link_nor_staging_exists",
        reason="a runtime has no right to make namespaces and links: cnm_bridge does it, before it asks for DEL",
    ),
}
