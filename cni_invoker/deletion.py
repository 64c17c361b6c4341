# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the failure of a plugin's DEL means, which depends on how far the ADD of that plugin came; pure.

| its ADD            | its DEL fails with                       | then |
| ------------------ | ---------------------------------------- | ---- |
| has completed      | code 3                                   | this plugin is done |
|                    | anything else                            | those before it do not run; the error is raised |
| has not completed  | code 3, 1, 2 or 7                        | this plugin is done |
|                    | anything else: killed, not found, ...    | the other plugins run; then the error is raised |
| has not begun      | anything                                 | this plugin is done: it has made nothing |

Code 3 says that there is nothing of the container, so that it needs no DEL (CNI SPEC "Error"). By the codes 1, 2 and 7
a plugin rejects a request as such: a version, a field or a configuration that it does not take. Its ADD was given the
same, and was rejected as well. No other error tells that a plugin has made nothing. Whoever stores attachments keeps
one as long as an error is raised, and repeats the DEL; only an explicit `force` forgets it.
"""

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from cni_invoker.codes import ErrorCode
from cni_invoker.plugin_errors import PluginError, PluginFailed

__all__ = ["RULES_BY_ADDRESS", "Progress", "is_done", "needs_rules", "progress_of_add", "says_unknown_container"]

RULES_BY_ADDRESS: Final = frozenset({"firewall"})
"""Types of plugins that find their rules by the addresses of the result alone, whichever container has these.

All others that are known find what they made by the container ID (`bridge` and `ptp`: a chain named after a hash of
network and ID; `portmap`, `bandwidth`: the same; `host-local`, `tuning`: files), by the container's name (`dnsname`),
or in the container's namespace (`sbr`, `vrf`, `route-override`); or they keep it (`isolation`).
"""

_REJECTIONS: Final = frozenset(
    {ErrorCode.INCOMPATIBLE_VERSION, ErrorCode.UNSUPPORTED_FIELD, ErrorCode.INVALID_CONFIGURATION}
)


def needs_rules(
    plugin: str, addresses: Collection[str], *, other_types: Collection[str] | None, other_addresses: Collection[str]
) -> bool:
    """Return whether another attachment, which is not being deleted, needs rules that the DEL of `plugin` would remove.

    Only then `plugin` receives no result. What it leaves is removed by the other attachment's own DEL, which runs all
    plugins of its list with the same address. An attachment without that plugin would never remove the rules.

    Args:
        plugin: The plugin's type.
        addresses: Those of the attachment that is deleted, without prefixes.
        other_types: The types of the other attachment's plugins; None if they are not known, then it needs the rules.
        other_addresses: Its addresses, without prefixes.
    """
    if plugin not in RULES_BY_ADDRESS or not set(addresses).intersection(other_addresses):
        return False
    return other_types is None or plugin in other_types


class Progress(Enum):
    """How far the ADD of a plugin came."""

    COMPLETED = auto()
    BEGUN = auto()
    """Or it was to begin next: nobody knows more than that it has not completed."""
    NOT_BEGUN = auto()


def progress_of_add(index: int, added_plugins: int | None) -> Progress:
    """Return how far the plugin at `index` came.

    The first `added_plugins` of its list have completed their ADD; None: all have.

    Results are stored before the next plugin begins, so that at most one plugin is in between.
    """
    if added_plugins is None or index < added_plugins:
        return Progress.COMPLETED
    return Progress.BEGUN if index == added_plugins else Progress.NOT_BEGUN


def is_done(failed: PluginError, progress: Progress) -> bool:
    """Return whether a plugin needs no further DEL, although its DEL has failed."""
    if progress is Progress.NOT_BEGUN or says_unknown_container(failed):
        return True
    return progress is Progress.BEGUN and _code_of_answer(failed) in _REJECTIONS


def says_unknown_container(failed: PluginError) -> bool:
    """Return whether a plugin says that there is nothing of the container."""
    return _code_of_answer(failed) == ErrorCode.UNKNOWN_CONTAINER


def _code_of_answer(failed: PluginError) -> int | None:
    """Return the code that a plugin has ended with, None if it did not end by itself."""
    return failed.code if isinstance(failed, PluginFailed) and failed.signal is None else None
