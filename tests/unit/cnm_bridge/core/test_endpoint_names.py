# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment is found by the name of its link, and never by a name of an operator's link."""

from pathlib import Path

import pytest

from cni_bridge_state import AttachmentId
from cnm_bridge.core.endpoint import attachment_of, attachments_of_others, pin_path, staging_path

ATTACHMENT = AttachmentId("0123456789abcdef" * 4)


@pytest.mark.parametrize(
    "name",
    [
        "eth0",
        ATTACHMENT,
        "cni-bridge-",
        "cni-bridge-uplink",
        f"cni-bridge-{ATTACHMENT}0",
        f"cni-bridge-{ATTACHMENT}\n",
        f"cni-bridge-../{ATTACHMENT}",
        f"xcni-bridge-{ATTACHMENT}",
        f"cni-bridge-{ATTACHMENT.upper()}",
    ],
)
def test_other_names_belong_to_no_attachment(name: str) -> None:
    """An operator may use such names for links."""
    assert attachment_of(name) is None


def test_the_attachments_of_another_instance() -> None:
    """They are known by the mounts below its run directory; our own, and Docker's sandboxes, are not among them."""
    ours, theirs = Path("/run/cni-bridge"), Path("/run/cni-bridge-blue")
    second = AttachmentId("f" * 64)
    mounted = [
        staging_path(theirs, ATTACHMENT),
        pin_path(theirs, second),
        staging_path(ours, AttachmentId("a" * 64)),
        Path("/run/docker/netns/0123456789ab"),
        Path("/run/netns/cni-1234"),
    ]
    assert attachments_of_others(mounted, ours) == {ATTACHMENT, second}
