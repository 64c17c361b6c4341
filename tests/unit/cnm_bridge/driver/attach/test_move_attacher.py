# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Name servers of a result do not reach the container, and are logged."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cnm_bridge.driver.attach.move_attacher import warn_of_dns
from tests.records import endpoint


@pytest.mark.parametrize(("dns", "events"), [({}, []), ({"search": ["lan.example"]}, ["endpoint.dns_unused"])])
def test_name_servers(dns: JsonObject, events: list[str]) -> None:
    """A result without any is not worth a line."""
    with capture_logs() as logs:
        warn_of_dns(replace(endpoint("e" * 64), result={"cniVersion": "1.0.0", "dns": dns}))
    assert [line["event"] for line in logs] == events
