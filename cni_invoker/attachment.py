# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment: one interface of one container."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cni_invoker.codes import ErrorCode
from cni_invoker.errors import InvalidParameter
from cni_invoker.names import check_container_id, check_given_argument, check_ifname, check_netns
from spec import JsonObject, render_json

__all__ = ["Attachment", "AttachmentKey", "freeze_keys"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttachmentKey:
    """What identifies an attachment (CNI SPEC "CNI operations").

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.

    Raises:
        InvalidParameter: A value is not allowed by CNI.
    """

    container_id: str
    ifname: str

    def __post_init__(self) -> None:
        check_container_id(self.container_id)
        check_ifname(self.ifname)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a container brings along for ADD, and again, unchanged, for every later verb.

    It is identified by its `key`. DEL must be given the same `args` and
    `capability_args` as ADD: without them `portmap`, for one, leaves its rules behind and reports success.

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        netns: Path of the container's network namespace.
        args: CNI_ARGS, in order, e.g. `(("IgnoreUnknown", "1"), ("IP", "10.1.0.9"))`. ADD takes no value with '=',
            which most plugins do not understand; other runtimes may have let one pass.
        capability_args: Values by capability, e.g. `{"mac": "c2:11:22:33:44:55"}`; each plugin is given those that it
            declares.

    Raises:
        InvalidParameter: A value is not allowed by CNI; such an attachment cannot exist.
    """

    container_id: str
    ifname: str
    netns: str
    args: tuple[tuple[str, str], ...] = ()
    capability_args: JsonObject = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
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
                # They become a part of the plugin's configuration.
                "capability arguments",
                values,
                f"they are no JSON: {exc}",
                code=ErrorCode.INVALID_CONFIGURATION,
            ) from exc

    @property
    def key(self) -> AttachmentKey:
        """What identifies it."""
        return AttachmentKey(container_id=self.container_id, ifname=self.ifname)


def freeze_keys(keys: Iterable[object]) -> tuple[AttachmentKey, ...]:
    """Return the keys of attachments, once each, in their order; a generator is gone through here and now.

    To be called before anything is deleted that is not among them: nothing equals a key but a key.

    Raises:
        TypeError: Something in there is no `AttachmentKey`.
    """
    frozen: dict[AttachmentKey, None] = {}
    for key in keys:
        if not isinstance(key, AttachmentKey):
            hint = "; that of an Attachment is its `key`" if isinstance(key, Attachment) else ""
            raise TypeError(f"each valid attachment must be given as its AttachmentKey, not as {key!r}{hint}")
        frozen[key] = None
    return tuple(frozen)
