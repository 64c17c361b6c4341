# SPDX-License-Identifier: Apache-2.0
"""An attachment: one interface of one container."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import fspath
from typing import TYPE_CHECKING

from cni_invoker.documents.checks import (
    StrPath,
    as_path,
    check_container_id,
    check_given_argument,
    check_ifname,
    check_netns,
    require_type,
)
from cni_invoker.documents.jsontypes import JsonObject, render_json
from cni_invoker.errors import ErrorCode, InvalidParameter

if TYPE_CHECKING:
    from cni_invoker.documents.capabilities import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttachmentKey:
    """What identifies an attachment (CNI SPEC "CNI operations").

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.

    Raises:
        InvalidParameter: CNI does not allow a value.
    """

    container_id: str
    ifname: str

    def __post_init__(self) -> None:
        check_container_id(require_type(self.container_id, str, "container_id"))
        check_ifname(require_type(self.ifname, str, "ifname"))


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Attachment:
    """The parameters of a container for ADD, which every later verb must receive unchanged.

    It is identified by its `key`. DEL must receive the same `args` and `capability_args` as ADD: without them `portmap`
    leaves its rules behind and reports success.

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        netns: Absolute path of the container's network namespace, a string or a path; empty only for DEL.
        args: CNI_ARGS, in order, given as a mapping or as pairs, e.g. `{"IgnoreUnknown": "1", "IP": "10.1.0.9"}`. ADD
            refuses values with '=', which most plugins do not understand; other runtimes may have used them.
        capability_args: Values by capability, e.g. `{"mac": "c2:11:22:33:44:55"}`, or `Capabilities`; each plugin
            receives those that it declares.

    Raises:
        InvalidParameter: CNI does not allow a value.
        TypeError: A value has another type.
    """

    container_id: str
    ifname: str
    netns: str
    args: tuple[tuple[str, str], ...] = ()
    capability_args: JsonObject = field(default_factory=dict, hash=False)

    def __init__(
        self,
        *,
        container_id: str,
        ifname: str,
        netns: StrPath,
        args: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        capability_args: "JsonObject | Capabilities | None" = None,
    ) -> None:
        values = {
            "container_id": require_type(container_id, str, "container_id"),
            "ifname": require_type(ifname, str, "ifname"),
            "netns": netns if isinstance(netns, str) else fspath(as_path(netns, "netns")),
            "args": _pairs(args),
            "capability_args": {} if capability_args is None else _by_capability(capability_args),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._validate()

    def _validate(self) -> None:
        check_container_id(self.container_id)
        check_ifname(self.ifname)
        check_netns(self.netns)
        for key, value in self.args:
            check_given_argument(key, value)
        try:
            render_json(self.capability_args)
        except ValueError as exc:
            values = str(self.capability_args)
            raise InvalidParameter(
                # They become part of the plugin's configuration.
                "capability arguments",
                values,
                f"they are not JSON: {exc}",
                code=ErrorCode.INVALID_CONFIGURATION,
            ) from exc

    @property
    def key(self) -> AttachmentKey:
        """Its identity."""
        return AttachmentKey(container_id=self.container_id, ifname=self.ifname)


def _by_capability(given: "JsonObject | Capabilities") -> JsonObject:
    if isinstance(given, Mapping):
        return given
    from cni_invoker.documents.capabilities import Capabilities  # noqa: PLC0415  # most programs need none

    if isinstance(given, Capabilities):
        return given.document
    raise TypeError(f"capability_args must be a mapping or Capabilities, not the {type(given).__name__} {given!r:.100}")


def _pairs(args: object) -> tuple[tuple[str, str], ...]:
    """Return CNI_ARGS as pairs; a string would be split into characters."""
    if isinstance(args, str) or not isinstance(args, Iterable):
        raise TypeError(f"args must be a mapping such as {{'IP': '10.1.0.9'}}, not the {type(args).__name__} {args!r}")
    pairs = []
    for pair in args.items() if isinstance(args, Mapping) else args:
        match pair:
            case [str(key), str(value)]:
                pairs.append((key, value))
            case _:
                raise TypeError(f"each item of args must be a key and a value, both str, not {pair!r:.100}")
    return tuple(pairs)


def freeze_keys(keys: Iterable[object]) -> tuple[AttachmentKey, ...]:
    """Return the keys as a tuple, in order and without duplicates; a generator is consumed.

    Call it before deleting what is not among the keys: an object of another type would never be equal to a key.

    Raises:
        TypeError: An item is not an `AttachmentKey`.
    """
    frozen: dict[AttachmentKey, None] = {}
    for key in keys:
        if not isinstance(key, AttachmentKey):
            hint = "; that of an Attachment is its `key`" if isinstance(key, Attachment) else ""
            raise TypeError(f"each valid attachment must be given as its AttachmentKey, not as {key!r}{hint}")
        frozen[key] = None
    return tuple(frozen)
