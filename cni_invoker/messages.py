# SPDX-License-Identifier: Apache-2.0
"""The log messages of this package: sentences for people, and as `extra` the event's name and facts for programs."""

import sys
from typing import Final

_SENTENCES: Final = {
    "configuration.reserved_keys": "{file}: only a runtime may set {keys}; that is not passed on to plugin {plugin}",
    "lock.kept": "went on without the lock {file} after {waited_s:g} s (lsof shows who has it): "
    "other processes may create the same iptables chains concurrently",
    "lock.unavailable": "other processes may create the same iptables chains concurrently: "
    "no lock in {directory}: {reason}",
    "plugin.delete_failed": "plugin {plugin} did not undo its ADD, but the other plugins have run: {error}",
    "plugin.executed": "plugin {plugin} has run {verb} for {container_id}/{ifname}: {outcome} after {duration_ms} ms",
    "plugin.not_observed": "the observer failed after {verb} of plugin {plugin}, which is not affected",
    "plugin.stderr": "plugin {plugin} ({verb}) wrote on standard error: {line}",
    "plugin.stdout": "plugin {plugin} ({verb}) failed, and wrote on standard output: {line}",
    "plugins.not_kept": "if this process is killed, the next ADD or DEL does not stop the plugin that it runs: "
    "{directory} cannot be written: {reason}",
}


_DEBUG: Final = frozenset({"plugin.executed", "plugin.stderr", "plugin.stdout"})
"""The events that are logged at level debug; the others are warnings."""
_ERROR: Final = "plugin.not_observed"


def is_debugging(name: str) -> bool:
    """Return whether a logger logs at level debug; nothing does before the program has loaded `logging`."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger(name).isEnabledFor(logging.DEBUG)


def log_event(name: str, event: str, **facts: object) -> None:
    """Log an event as a sentence; the record has the attribute `event`, and one for each fact.

    `name` is the logger's: that of the module. With the one error, the exception that is being handled is logged too.
    """
    if event in _DEBUG and not is_debugging(name):
        return
    import logging  # noqa: PLC0415  # it takes longer to load than most modules, and most programs have loaded it

    level = logging.DEBUG if event in _DEBUG else logging.ERROR if event == _ERROR else logging.WARNING
    log = logging.getLogger(name)
    if log.isEnabledFor(level):
        sentence = _SENTENCES[event].format_map(facts)
        log.log(level, "%s", sentence, extra={"event": event, **facts}, exc_info=event == _ERROR, stacklevel=2)
