# SPDX-License-Identifier: Apache-2.0
"""A plugin: a function for each verb, called with what the runtime has sent."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from cni_invoker.documents.checks import check_container_id, check_ifname, check_netns, check_network_name
from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_str,
    parse_json,
    render_json,
)
from cni_invoker.documents.result_documents import check_result, convert_result
from cni_invoker.documents.versions import SUPPORTED_VERSIONS, Verb, is_at_least
from cni_invoker.errors import BadResult, CniError, ErrorCode, InvalidParameter, PluginFailed, failed_words
from cni_plugin.call import NEWEST, Call, CallError, is_own_namespace

if TYPE_CHECKING:
    from cni_invoker.documents.results import Result

_FIRST: Final = SUPPORTED_VERSIONS[0]
"""The version of a configuration without one."""
_REQUIRED: Final = {
    Verb.ADD: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    Verb.CHECK: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    Verb.DEL: ("CNI_CONTAINERID", "CNI_IFNAME"),
}
"""The variables that a verb needs (CNI SPEC §2). CNI_PATH is needed only to execute a further plugin."""
_CHECKS: Final[Mapping[str, Callable[[str], None]]] = {
    "CNI_CONTAINERID": check_container_id,
    "CNI_NETNS": check_netns,
    "CNI_IFNAME": check_ifname,
}


class Plugin:
    """A plugin: a function for each verb.

    A function that raises ends the call with an error: a `CniError` with its code, message and details, anything else
    with code 999 and a traceback on standard error. Without a function for DEL, CHECK, GC or STATUS, the verb is passed
    on to the IPAM plugin, if there is one.

    Args:
        add: Returns the result, in any version, by default the newest; None passes on that of the plugin before.
        delete: Removes what ADD made; succeeds if it is gone, or was never made.
        check: Raises if anything is not as ADD left it. The call has a `prev_result`.
        gc: Removes what no valid attachment has.
        status: Raises `CallError(ErrorCode.NOT_AVAILABLE, …)` if no ADD can succeed.
        versions: The versions of the specification that the plugin supports.
    """

    def __init__(
        self,
        *,
        add: "Callable[[Call], Result | JsonObject | None]",
        delete: Callable[[Call], None] | None = None,
        check: Callable[[Call], None] | None = None,
        gc: Callable[[Call], None] | None = None,
        status: Callable[[Call], None] | None = None,
        versions: Sequence[str] = SUPPORTED_VERSIONS,
    ) -> None:
        self._add = add
        self._others = {Verb.DEL: delete, Verb.CHECK: check, Verb.GC: gc, Verb.STATUS: status}
        self._versions = versions

    def run(self, about: str = "") -> NoReturn:
        """Act as an executable: read the call, answer it, and end the process.

        What functions and child processes print goes to standard error.

        Args:
            about: A text for someone who starts the plugin without CNI_COMMAND.
        """
        answers = os.dup(1)
        os.dup2(2, 1)  # only the answer may go to standard output
        if about and not os.environ.get("CNI_COMMAND"):
            sys.stderr.write(f"{about}\nCNI versions: {', '.join(self._versions)}\n")
            sys.exit(0)
        exit_status, stdout, stderr = self._answer(os.environ, _read_stdin)
        os.write(answers, stdout)
        sys.stderr.write(stderr.decode("utf-8", "replace"))
        sys.exit(exit_status)

    def answer(self, environment: Mapping[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
        """Answer a call in this process: its own environment and standard input play no part.

        It raises nothing. The functions run in the caller's thread, several calls at once; so they use no global state
        of the process, such as `os.environ` or the working directory, and print nothing.

        Args:
            environment: The environment of the call: CNI_COMMAND, CNI_CONTAINERID and so on (CNI SPEC §2).
            stdin: What an executable would read.

        Returns:
            What an executable would end with and print: exit status, standard output and standard error.
        """
        return self._answer(environment, lambda: stdin)

    def _answer(self, environment: Mapping[str, str], read: Callable[[], bytes]) -> tuple[int, bytes, bytes]:
        command = environment.get("CNI_COMMAND", "")
        config: JsonObject = {}
        exit_status, stderr = 0, ""
        try:
            verb = _parse_verb(command)
            stdin = read()
            if verb is Verb.VERSION:
                config = _parse_config(stdin) if stdin.strip() else {}
                answer: JsonObject = {"supportedVersions": list(self._versions)}
            else:
                config = _parse_config(stdin)
                call = _make_call(verb, stdin, config, self._versions, environment)
                answer = _add(call, self._add) if verb is Verb.ADD else _pass_on(call, self._others[verb])
        except BaseException as exc:  # noqa: BLE001  # the runtime needs an answer, whatever has happened
            answer, stderr = _describe(exc)
            exit_status = 1
        version = config.get("cniVersion") or (self._versions[-1] if command == Verb.VERSION else _FIRST)
        stdout = render_json({"cniVersion": version, **answer}) + b"\n" if answer else b""
        return exit_status, stdout, stderr.encode("utf-8", "backslashreplace")


def _read_stdin() -> bytes:
    return sys.stdin.buffer.read()


def _parse_verb(command: str) -> Verb:
    try:
        return Verb(command)
    except ValueError:
        raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"unknown CNI_COMMAND: {command}") from None


def _parse_config(stdin: bytes) -> JsonObject:
    try:
        config = as_object(parse_json(stdin), "it")
        find_str(config, "cniVersion")
    except JsonError as exc:
        raise CallError(ErrorCode.DECODING_FAILURE, f"the configuration on standard input is invalid: {exc}") from exc
    return config


def _make_call(
    verb: Verb, stdin: bytes, config: JsonObject, versions: Sequence[str], environment: Mapping[str, str]
) -> Call:
    """Check what the runtime has sent, as `pkg/skel` does."""
    missing = [name for name in _REQUIRED.get(verb, ()) if not environment.get(name)]
    if missing:
        # Same wording as skel up to the semicolon.
        raise CallError(
            ErrorCode.INVALID_ENVIRONMENT, f"required env variables [{','.join(missing)}] missing; {verb} needs them"
        )
    for name, check in _CHECKS.items() if verb in _REQUIRED else ():
        try:
            check(environment.get(name, ""))
        except InvalidParameter as exc:
            raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"{name}: {exc.msg}") from exc
    is_allowed = environment.get("CNI_NETNS_OVERRIDE", "").upper() in {"1", "TRUE"}
    if verb in {Verb.ADD, Verb.DEL} and not is_allowed and is_own_namespace(environment.get("CNI_NETNS", "")):
        # Same wording as skel up to the semicolon.
        reason = "plugin's netns and netns from CNI_NETNS should not be the same; set CNI_NETNS_OVERRIDE=1 if they may"
        raise CallError(ErrorCode.INVALID_NAMESPACE, reason)
    version = find_str(config, "cniVersion") or _FIRST
    if version not in versions:
        details = f'config is "{version}", plugin supports {", ".join(versions)}'
        raise CallError(ErrorCode.INCOMPATIBLE_VERSION, "incompatible CNI versions", details)
    if not is_at_least(version, verb.since):
        details = f'config is "{version}", {verb} came with {verb.since}'
        raise CallError(ErrorCode.INCOMPATIBLE_VERSION, f"config version does not allow {verb}", details)
    try:
        check_network_name(get_str(config, "name"))
        call = Call(verb, stdin, config, version, environment)
        _ = call.runtime_config, call.ipam_type, find_object(config, "prevResult")
    except (InvalidParameter, JsonError) as exc:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, f"invalid network configuration: {exc}") from exc
    if verb is Verb.CHECK and config.get("prevResult") is None:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, "prevResult is missing: CHECK needs it")
    return call


def _add(call: Call, add: "Callable[[Call], Result | JsonObject | None]") -> JsonObject:
    try:
        found = add(call)
        if found is None:
            found = call.prev_result or {"cniVersion": call.cni_version}
        try:
            document = found if isinstance(found, Mapping) else found.document
            return check_result(convert_result(check_result(document, NEWEST), call.cni_version), call.cni_version)
        except BadResult as exc:
            raise CallError(ErrorCode.INTERNAL, f"this plugin made an invalid result: {exc.reason}") from exc
    except BaseException as exc:
        if call.ipam_reserved:
            try:
                call.ipam_delete()
            except CniError as second:  # the runtime's own DEL tries again
                exc.add_note(f"the addresses are not free: {second.msg}")
        raise


def _pass_on(call: Call, function: Callable[[Call], None] | None) -> JsonObject:
    if function is not None:
        function(call)
    elif call.ipam_type:
        call.delegate(call.ipam_type, call.verb)
    return {}


def _describe(exc: BaseException) -> tuple[JsonObject, str]:
    """Return an error as CNI's document, and the traceback of one that is none of CNI's."""
    traces: list[str] = []
    notes = getattr(exc, "__notes__", ())
    if isinstance(exc, PluginFailed):
        code, msg, details = exc.code, f"{failed_words(exc.plugin, exc.verb)}: {exc.msg}", exc.details
    elif isinstance(exc, CniError):
        code, msg, details = int(exc.code), exc.msg, exc.details
    else:
        import traceback  # noqa: PLC0415

        traces = traceback.format_exception(exc)
        code, msg, details = int(ErrorCode.INTERNAL), f"{type(exc).__name__}: {exc}", ""
    details = "; ".join(filter(None, (details, *notes)))
    return {"code": code, "msg": msg, **({"details": details} if details else {})}, "".join(traces)
