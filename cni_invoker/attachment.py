# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment: one interface of one container."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cni_bridge_spec import JsonObject, render_json
from cni_invoker.codes import ErrorCode
from cni_invoker.errors import InvalidParameter
from cni_invoker.names import check_container_id, check_given_argument, check_ifname, check_netns

__all__ = ["Attachment", "AttachmentKey", "freeze_keys"]


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
        check_container_id(self.container_id)
        check_ifname(self.ifname)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The parameters of a container for ADD, which every later verb must receive unchanged.

    It is identified by its `key`. DEL must receive the same `args` and `capability_args` as ADD: without them `portmap`
    leaves its rules behind and reports success.

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        netns: Path of the container's network namespace.
        args: CNI_ARGS, in order, e.g. `(("IgnoreUnknown", "1"), ("IP", "10.1.0.9"))`. ADD refuses values with '=',
            which most plugins do not understand; they are valid here because other runtimes may have used them.
        capability_args: Values by capability, e.g. `{"mac": "c2:11:22:33:44:55"}`; each plugin receives those that it
            declares.

    Raises:
        InvalidParameter: CNI does not allow a value.
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
                # They become part of the plugin's configuration.
                "capability arguments",
                values,
                f"they are no JSON: {exc}",
                code=ErrorCode.INVALID_CONFIGURATION,
            ) from exc

    @property
    def key(self) -> AttachmentKey:
        """Its identity."""
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
            hint = "; that of an Attachment is its `key`" if isinstance(key, Attachment) else ""
            raise TypeError(f"each valid attachment must be given as its AttachmentKey, not as {key!r}{hint}")
        frozen[key] = None
    return tuple(frozen)
