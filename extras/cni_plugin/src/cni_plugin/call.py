# SPDX-License-Identifier: Apache-2.0
"""One call of a plugin, as the plugin sees it."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from cni_invoker.documents.checks import check_argument
from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    find_object,
    find_str,
    get_objects,
    get_str,
    parse_json,
)
from cni_invoker.documents.versions import SUPPORTED_VERSIONS, VALID_ATTACHMENTS, Verb
from cni_invoker.errors import BadResult, CniError, ErrorCode, InvalidParameter

if TYPE_CHECKING:
    from cni_invoker.documents.attachment import AttachmentKey
    from cni_invoker.documents.results import Result

T = TypeVar("T")

NEWEST: Final = SUPPORTED_VERSIONS[-1]
"""The version in whose form a plugin reads and writes results, whatever the configuration's is."""

_OWN: Final = "/proc/thread-self/ns/net"
_CLONE_NEWNET: Final = 0x40000000

if sys.version_info >= (3, 12):
    from os import setns
else:

    def setns(fd: int, nstype: int = 0) -> None:
        """Move this thread into a namespace (setns(2)), as Python can from 3.12 on."""
        import ctypes  # noqa: PLC0415  # a plugin starts anew for each call, and most never need it

        if ctypes.CDLL(None, use_errno=True).setns(fd, nstype) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class CallError(CniError):
    """The plugin cannot do what it was called for; its answer is this error.

    Attributes:
        code: The kind of error: an `ErrorCode`, or from 100 on one of the plugin's own.
        msg: A short message.
        details: A longer one, possibly empty.
    """

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        super().__init__(msg)
        self.code = code
        self.details = details


class Call:
    """One call of the plugin: one verb for one attachment, or GC or STATUS for a network.

    Attributes:
        verb: The operation.
        container_id: The container's ID; empty for GC and STATUS, as are the next two.
        netns: Path of its network namespace; may be empty for DEL, and the namespace may be gone.
        ifname: Name of the interface inside the container.
        config: The configuration, as the runtime sent it.
        name: The network's name.
        cni_version: The version of the configuration, in which the runtime is answered.
        stdin: The configuration as bytes, for further plugins.
        environment: The environment that the runtime has given.
        ipam_reserved: Whether the IPAM plugin has reserved addresses in this call, which are freed if it fails.
    """

    def __init__(
        self,
        verb: Verb,
        stdin: bytes,
        config: JsonObject,
        cni_version: str,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.verb = verb
        self.stdin = stdin
        self.config = config
        self.cni_version = cni_version
        self.name = find_str(config, "name") or ""
        self.environment = environment
        self.container_id = environment.get("CNI_CONTAINERID", "")
        self.netns = environment.get("CNI_NETNS", "")
        self.ifname = environment.get("CNI_IFNAME", "")
        self.ipam_reserved = False

    @cached_property
    def args(self) -> Mapping[str, str]:
        """CNI_ARGS, in order, e.g. `{"IgnoreUnknown": "1", "IP": "10.1.0.9"}`; the last one of a key counts.

        Raises:
            CallError: It is malformed.
        """
        pairs = [pair.partition("=") for pair in self.environment.get("CNI_ARGS", "").split(";") if pair]
        for key, equals, value in pairs:
            try:
                check_argument(key if equals else "", value, of_others=True)
            except InvalidParameter as exc:
                raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_ARGS: {exc.msg}") from exc
        return {key: value for key, _, value in pairs}

    @cached_property
    def runtime_config(self) -> JsonObject:
        """The capability arguments that the runtime passes, e.g. `{"mac": "c2:11:22:33:44:55"}`."""
        return find_object(self.config, "runtimeConfig") or {}

    @cached_property
    def prev_result(self) -> "Result | None":
        """The result of the plugin before this one, or for CHECK and DEL of ADD; None without one.

        Its `document` has the form of the newest version of the specification, whatever `cni_version` is.

        Raises:
            BadResult: It is not a result.
        """
        document = find_object(self.config, "prevResult")
        return None if document is None else _as_result(document, self.cni_version)

    @cached_property
    def valid_attachments(self) -> "frozenset[AttachmentKey]":
        """For GC: the attachments that exist; the plugin removes what it has for others.

        Raises:
            CallError: The runtime did not send them, or they are invalid. Then nothing may be removed.
        """
        from cni_invoker.documents.attachment import AttachmentKey  # noqa: PLC0415  # only GC needs it

        keys = [key for key in VALID_ATTACHMENTS if key in self.config]
        if not keys:
            raise CallError(ErrorCode.INVALID_CONFIGURATION, f"{VALID_ATTACHMENTS[0]} is missing")
        # `null` is what Go writes for an empty list: a network without attachments.
        key = next((key for key in keys if self.config[key] is not None), keys[0])
        try:
            return frozenset(
                AttachmentKey(container_id=get_str(one, "containerID"), ifname=get_str(one, "ifname"))
                for one in get_objects(self.config, key)
            )
        except (InvalidParameter, JsonError) as exc:
            raise CallError(ErrorCode.INVALID_CONFIGURATION, f"{key} is invalid: {exc}") from exc

    @property
    def ipam_type(self) -> str:
        """The type of the IPAM plugin in the configuration, empty without one."""
        return find_str(find_object(self.config, "ipam") or {}, "type") or ""

    def in_namespace(self, work: Callable[[], T]) -> T:
        """Run a function inside the container's network namespace, in a thread; programs that it starts are inside too.

        Raises:
            CallError: The namespace cannot be entered (code 4). The function's own exceptions are raised as they are.
        """
        began = False

        def run() -> T:
            nonlocal began
            began = True
            return work()

        try:
            return run_in_namespace(self.netns, run)
        except (OSError, ValueError) as exc:
            if began:
                raise
            raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_NETNS: {self.netns!r}: {exc}") from exc

    def require_no_interface(self) -> None:
        """Raise an error if the container has an interface of this name, as when ADD is repeated (CNI SPEC "ADD").

        A plugin that makes the interface calls it before `ipam_add`: the addresses that are freed if the link cannot be
        made may be those of the existing interface.

        Raises:
            CallError: There is such an interface, or the namespace cannot be entered (code 4).
        """
        if self.ifname in self.in_namespace(interface_names):
            raise CallError(
                ErrorCode.INTERNAL, f"{self.container_id} already has an interface {self.ifname}; DEL it first"
            )

    def ipam_add(self) -> "Result":
        """Let the IPAM plugin assign addresses. If ADD fails after this method, its DEL runs by itself.

        If the IPAM plugin itself fails, its DEL does not run: after a repeated ADD the addresses are those of a
        container in use. The runtime's own DEL follows a failed ADD.

        Returns:
            The addresses, routes and DNS; `document` has the form of the newest version of the specification.

        Raises:
            CallError: The configuration has no IPAM plugin.
            CniError: It is not found, has failed, or has printed something else than a result.
        """
        stdout = self.delegate(self._require_ipam(), Verb.ADD)
        self.ipam_reserved = True
        try:
            return _as_result(parse_json(stdout), self.cni_version)
        except (BadResult, JsonError) as exc:
            reason = exc.reason if isinstance(exc, BadResult) else str(exc)
            raise BadResult(reason, plugin=self.ipam_type, verb=Verb.ADD) from exc

    def ipam_delete(self) -> None:
        """Let the IPAM plugin free the addresses. Raises as `ipam_add` does."""
        self.delegate(self._require_ipam(), Verb.DEL)
        self.ipam_reserved = False

    def ipam_pass_on(self) -> None:
        """Pass this call on to the IPAM plugin, whichever of CHECK, GC and STATUS it is. Raises as `ipam_add` does."""
        self.delegate(self._require_ipam(), self.verb)

    def delegate(self, plugin_type: str, verb: Verb) -> bytes:
        """Execute a plugin with this call's input and environment (CNI SPEC §4), and return its standard output.

        It is searched in CNI_PATH. Its standard error is this plugin's.

        Raises:
            CallError: CNI_PATH is missing.
            PluginNotFound: It is not there.
            PluginFailed: It has failed. This plugin's answer has the same code, and names the plugin.
        """
        import subprocess  # noqa: PLC0415  # many plugins never execute another one
        import time  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        from cni_invoker.execution.answer import find_plugin, plugin_failure  # noqa: PLC0415

        search = self.environment.get("CNI_PATH", "")
        if not search:
            raise CallError(
                ErrorCode.INVALID_ENVIRONMENT,
                f"required env variables [CNI_PATH] missing; plugin {plugin_type} is searched there",
            )
        path = find_plugin(plugin_type, [Path(directory) for directory in search.split(":") if directory])
        begun = time.monotonic()
        environment = {**self.environment, "CNI_COMMAND": verb.value}
        ended = subprocess.run([path], input=self.stdin, env=environment, stdout=subprocess.PIPE, check=False)
        if ended.returncode:
            raise plugin_failure(
                plugin=plugin_type,
                verb=verb,
                path=path,
                network=self.name,
                container_id=self.container_id,
                status=ended.returncode,
                stdout=ended.stdout,
                duration_s=time.monotonic() - begun,
            )
        return ended.stdout

    def _require_ipam(self) -> str:
        if not self.ipam_type:
            raise CallError(ErrorCode.INVALID_CONFIGURATION, "ipam.type is missing: this plugin needs an IPAM plugin")
        return self.ipam_type


def _as_result(document: JsonValue, version: str) -> "Result":
    from cni_invoker.documents.results import Result  # noqa: PLC0415

    return Result.from_document(document, cni_version=version).converted(NEWEST)


def run_in_namespace(netns: str, work: Callable[[], T]) -> T:
    """Run `work` in a thread inside a network namespace; programs that it starts are inside too.

    Raises:
        OSError: The namespace cannot be entered; the work has not begun. The work may raise it as well.
    """
    import threading  # noqa: PLC0415  # a plugin starts anew for each call, and most never need it

    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                setns(descriptor, _CLONE_NEWNET)
            finally:
                os.close(descriptor)
            results.append(work())
        except BaseException as exc:  # noqa: BLE001  # the caller raises it
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return results[0]


def interface_names() -> tuple[str, ...]:
    """Return the names of all interfaces of this thread's network namespace."""
    with open("/proc/thread-self/net/dev", "rb") as opened:  # noqa: PTH123  # a plugin does without pathlib
        _, _, *lines = opened.read().splitlines()
    return tuple(os.fsdecode(line.partition(b":")[0].strip()) for line in lines)


def is_own_namespace(netns: str) -> bool:
    """Return whether this is the path of this thread's own network namespace; False if there is no such file."""
    try:
        given, own = os.stat(netns), os.stat(_OWN)  # noqa: PTH116  # as above
    except (OSError, ValueError):
        return False
    return (given.st_dev, given.st_ino) == (own.st_dev, own.st_ino)
