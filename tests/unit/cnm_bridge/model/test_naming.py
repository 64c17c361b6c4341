# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment is found by the name of its link, and never by a name of an operator's link."""

import pytest

from cni_bridge_state import AttachmentId
from cnm_bridge.model.naming import alternative_name, attachment_of

ATTACHMENT = AttachmentId("0123456789abcdef" * 4)


def test_a_link_has_the_id_of_its_attachment() -> None:
    """The ID is read from the link's alternative name."""
    assert attachment_of(alternative_name(ATTACHMENT)) == ATTACHMENT


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
