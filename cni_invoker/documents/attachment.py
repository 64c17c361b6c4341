# SPDX-License-Identifier: Apache-2.0
"""An attachment: one interface of one container."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import fspath

from cni_invoker.documents.checks import StrPath, check_argument, check_container_id, check_ifname, check_netns
from cni_invoker.documents.jsontypes import JsonObject, render_json
from cni_invoker.errors import ErrorCode, InvalidParameter


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttachmentKey:
    """What identifies an attachment (CNI SPEC "CNI operations"); `InvalidParameter` if CNI does not allow it."""

    container_id: str
    ifname: str

    def __post_init__(self) -> None:
        check_container_id(self.container_id)
        check_ifname(self.ifname)


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Attachment:
    """The parameters of a container for ADD, which every later verb must receive unchanged.

    It is identified by its `key`. DEL must receive the same `args` and `capability_args` as ADD: without them `portmap`
    leaves its rules behind and reports success.

    Attributes:
        netns: Absolute path of the container's network namespace, a string or a path; empty only for DEL.
        args: CNI_ARGS, in order, given as a mapping or as pairs, e.g. `{"IgnoreUnknown": "1", "IP": "10.1.0.9"}`. ADD
            refuses values with '=', which most plugins do not understand; other runtimes may have used them.
        capability_args: Values by capability, as in CNI's CONVENTIONS.md, e.g. `{"mac": "c2:11:22:33:44:55"}`; each
            plugin receives those that it declares.

    Raises:
        InvalidParameter: CNI does not allow a value.
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
        capability_args: JsonObject | None = None,
    ) -> None:
        values = {
            "container_id": container_id,
            "ifname": ifname,
            "netns": fspath(netns),
            "args": tuple((key, value) for key, value in (args.items() if isinstance(args, Mapping) else args)),
            "capability_args": capability_args or {},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_container_id(self.container_id)
        check_ifname(self.ifname)
        check_netns(self.netns)
        for key, text in self.args:
            check_argument(key, text, of_others=True)
        try:
            render_json(self.capability_args)
        except ValueError as exc:
            code = ErrorCode.INVALID_CONFIGURATION  # they become part of the plugin's configuration
            reason = f"they are not JSON: {exc}"
            raise InvalidParameter("capability arguments", str(self.capability_args), reason, code=code) from exc

    @property
    def key(self) -> AttachmentKey:
        """What identifies it."""
        return AttachmentKey(container_id=self.container_id, ifname=self.ifname)


def freeze_keys(keys: Iterable[object]) -> tuple[AttachmentKey, ...]:
    """Return the keys as a tuple, in order and without duplicates; a generator is consumed.

    Call it before deleting what is not among the keys: an object of another type would never be equal to a key.

    Raises:
        TypeError: An item is not an `AttachmentKey`.
    """
    frozen: dict[AttachmentKey, None] = {}
    for key in keys:
        if not isinstance(key, AttachmentKey):
            raise TypeError(f"each valid attachment must be given as its AttachmentKey (its `key`), not as {key!r}")
        frozen[key] = None
    return tuple(frozen)
