# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Name servers of a result that do not reach the container are logged."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cni_bridge_state import DnsOption
from cnm_bridge.driver.attach.move_attacher import warn_of_dns
from tests.records import endpoint


@pytest.mark.parametrize(
    ("option", "dns", "events"),
    [
        (None, {}, []),
        (None, {"search": ["lan.example"]}, ["endpoint.dns_unused"]),
        (DnsOption.SEARCH, {"search": ["lan.example"]}, []),
        (DnsOption.REPLACE, {"nameservers": ["10.99.0.53"]}, []),
        (DnsOption.REPLACE, {"search": ["lan.example"]}, ["endpoint.dns_not_replaced"]),
        (DnsOption.REPLACE, {}, ["endpoint.dns_not_replaced"]),
    ],
)
def test_name_servers(option: DnsOption | None, dns: JsonObject, events: list[str]) -> None:
    """Those of the result without `cni.dns`, and their lack if they are to replace Docker's."""
    made = endpoint("e" * 64)
    record = replace(made, attachment=replace(made.attachment, dns=option), result={"cniVersion": "1.0.0", "dns": dns})
    with capture_logs() as logs:
        warn_of_dns(record)
    assert [one["event"] for one in logs] == events
