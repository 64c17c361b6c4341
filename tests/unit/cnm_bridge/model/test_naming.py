# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names lead from an attachment to its link and back, and nobody else's name does."""

import pytest

from cnm_bridge.model.naming import alternative_name, attachment_of
from state import AttachmentId

ATTACHMENT = AttachmentId("0123456789abcdef" * 4)


def test_there_and_back() -> None:
    """A link tells whose it is."""
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
def test_names_of_others(name: str) -> None:
    """An operator may give such names, and what has them is the operator's."""
    assert attachment_of(name) is None
