# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cases in which cni_invoker deliberately differs from libcni, and improvements in other packages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DIVERGENCES", "IMPROVED_ELSEWHERE", "Divergence", "Elsewhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One difference.

    Attributes:
        ours: Our words instead of libcni's; `{dir}` stands for a path. Empty if the words are not the difference.
        reason: Why.
    """

    ours: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """An improvement on libcni in another place than its case expects.

    Attributes:
        definition: The definition that implements it, as `file::name`.
        test: Its test, as `file::name`.
        reason: Why it is there.
    """

    definition: str
    test: str
    reason: str


_FILE: Final = "the message names the invalid file, which libcni's does not, before the reason"

DIVERGENCES: Final[Mapping[str, Divergence]] = {
    "disc-009": Divergence(
        ours="error parsing configuration: {file}: 'type' is a required property",
        reason=f"a schema finds it, and {_FILE}",
    ),
    "disc-014": Divergence(
        ours="error parsing configuration list: {file}: invalid value for disableCheck: "
        'a string that is neither "true" nor "false"',
        reason=f"{_FILE}; a value may be a credential, so it is not shown",
    ),
    "disc-017": Divergence(
        ours="error parsing configuration list: {file}: `loadOnlyInlinedPlugins` is true, and no 'plugins' key",
        reason=f"same words, but {_FILE}",
    ),
    "disc-023": Divergence(
        ours="error parsing configuration list: {file}: no plugins in list", reason=f"same words, but {_FILE}"
    ),
    "disc-025": Divergence(
        ours="error parsing configuration list: {file}: name: 5 is not of type 'string'",
        reason=f"a schema finds it, and {_FILE}",
    ),
    "ver-006": Divergence(
        ours="", reason="a list without a version is reported as 0.1.0, which is the meaning of an empty version"
    ),
    "ver-015": Divergence(
        ours="invalid CNI version 'broken': it is not of the form 1.0.0",
        reason="an invalid version is found when the list is read, before any plugin runs",
    ),
    "name-005": Divergence(
        ours="invalid container ID 'some-%%-container-id'",
        reason="an attachment with an invalid ID cannot be made: this error comes before the search for plugins",
    ),
    "stdin-006": Divergence(
        ours="", reason="there is no call that injects keys, so none with an empty key or a null value to be refused"
    ),
    "cache-003": Divergence(
        ours="invalid network name ''", reason="a missing name breaks the rule for names, and is reported as that"
    ),
}

IMPROVED_ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "env-004": Elsewhere(
        definition="cni_invoker/documents/checks.py::check_argument",
        test="tests/unit/cni_invoker/documents/test_checks.py::test_arguments_that_cni_args_cannot_represent_are_invalid",
        reason="invalid arguments are refused; IgnoreUnknown is not added, since all keys are the caller's",
    ),
    "del-012": Elsewhere(
        definition="cnm_bridge/driver/teardown/teardown.py::Teardown",
        test="tests/kernel/test_staged_link_bring_back.py::test_neither_link_nor_staging_exists",
        reason="making namespaces and links is not a runtime's task: cnm_bridge does it before DEL",
    ),
}
