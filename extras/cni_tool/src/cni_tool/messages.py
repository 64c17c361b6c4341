# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The log messages of this package: sentences for people, and as `extra` the event's name and facts for programs."""

import logging
from typing import Final

_SENTENCES: Final = {
    "cache.bad_result": "the cached result of {network} is not used: {reason}",
    "cache.damaged": "the cached attachment in {place} is not used: {reason}",
    "cache.progress_not_stored": "the progress of the DEL cannot be stored; a repetition starts from the beginning: "
    "{place}: {reason}",
    "cache.unreadable": "{file} is skipped: {reason}",
    "delete.incomplete": "resources of {network} may have been left behind: {error}",
    "plugins.ended": "killed processes that were left behind for {container_id}: {pids}",
}


def log_warning(name: str, event: str, **facts: object) -> None:
    """Log an event as a sentence.

    Args:
        name: The logger's name: the module's.
        event: The event's name.
        facts: The facts that the sentence needs.
    """
    sentence = _SENTENCES[event].format_map(facts)
    logging.getLogger(name).warning("%s", sentence, extra={"event": event, **facts}, stacklevel=2)
