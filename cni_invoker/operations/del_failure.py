# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a failed DEL of a plugin means, depending on how far its ADD came; pure.

| its ADD            | its DEL fails with                       | then |
| ------------------ | ---------------------------------------- | ---- |
| has completed      | code 3                                   | this plugin is done |
|                    | anything else                            | those before it do not run; the error is raised |
| has not completed  | code 3, 1, 2 or 7                        | this plugin is done |
|                    | anything else: killed, not found, ...    | the other plugins run; then the error is raised |
| has not begun      | anything                                 | this plugin is done: it has created nothing |

Code 3 means that the plugin has nothing of the container and needs no DEL (CNI SPEC "Error"). With codes 1, 2 and 7 a
plugin rejects the request itself: it does not support the version, a field or the configuration. Its ADD received the
same request and was rejected as well. No other error proves that the plugin has created nothing. A caller that stores
attachments keeps the attachment and repeats the DEL as long as an error is raised; only `force` forgets it.
"""

from enum import Enum, auto
from typing import Final

from cni_invoker.errors import PluginError, PluginFailed
from cni_invoker.protocol import ErrorCode

__all__ = ["AddProgress", "is_done", "progress_of_add", "says_unknown_container"]

_REJECTIONS: Final = frozenset(
    {ErrorCode.INCOMPATIBLE_VERSION, ErrorCode.UNSUPPORTED_FIELD, ErrorCode.INVALID_CONFIGURATION}
)


class AddProgress(Enum):
    """How far the ADD of a plugin came."""

    COMPLETED = auto()
    BEGUN = auto()
    """It has not completed. It may not even have begun, if it was the next one to run."""
    NOT_BEGUN = auto()


def progress_of_add(index: int, added_plugins: int | None) -> AddProgress:
    """Return how far the ADD of the plugin at `index` came.

    The first `added_plugins` of the list have completed ADD; None: all have. Results are stored before the next plugin
    begins, so at most one plugin is in between.
    """
    if added_plugins is None or index < added_plugins:
        return AddProgress.COMPLETED
    return AddProgress.BEGUN if index == added_plugins else AddProgress.NOT_BEGUN


def is_done(failed: PluginError, progress: AddProgress) -> bool:
    """Return whether a plugin needs no further DEL although its DEL failed."""
    if progress is AddProgress.NOT_BEGUN or says_unknown_container(failed):
        return True
    return progress is AddProgress.BEGUN and _code_of_answer(failed) in _REJECTIONS


def says_unknown_container(failed: PluginError) -> bool:
    """Return whether a plugin reports code 3: it has nothing of the container."""
    return _code_of_answer(failed) == ErrorCode.UNKNOWN_CONTAINER


def _code_of_answer(failed: PluginError) -> int | None:
    """Return the error code of a plugin, None if the plugin did not end by itself."""
    return failed.code if isinstance(failed, PluginFailed) and failed.signal is None else None
