# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Addresses that are given as settings."""

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.cli.setting import check_engine_address


@pytest.mark.parametrize(
    "address", ["unix:///run/docker.sock", "tcp://[::1]:2375", "http://localhost:2375", "https://h:1"]
)
def test_an_engine_address(address: str) -> None:
    """A Unix socket, or TCP with or without HTTP's scheme."""
    check_engine_address(address)


@pytest.mark.parametrize(
    "address", ["ftp://10.0.0.1:2375", "ssh://host", "/run/docker.sock", "unix://run/docker.sock", ""]
)
def test_an_engine_address_that_is_refused(address: str) -> None:
    """The text shows the address and names the option."""
    with pytest.raises(Refused, match="is neither unix:///path nor tcp://host:port; set --docker-host") as refused:
        check_engine_address(address)
    assert repr(address) in str(refused.value)
