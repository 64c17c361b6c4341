# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rules of nftables that tell whose they are, among those that do not."""

from cnm_bridge.traces import ANY_NETWORK, Trace, find_nft_rules, parse_nft_rules

MASQUERADE = """table inet cni_plugins_masquerade { # handle 2
	comment "Masquerading for plugins from github.com/containernetworking/plugins"
	chain masq_checks { # handle 1
		comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"
		ip saddr 10.77.0.2 return comment "a442bdc0d9fc678e-dc3bd8e4efb06479, net: lan, if: eth0, id: 77ad" # handle 6
		ip saddr 10.77.0.3 masquerade comment "an operator's" # handle 7
	}

	chain postrouting { # handle 2
		type nat hook postrouting priority srcnat; policy accept;
		goto masq_checks # handle 5
	}
}
"""
HOST_PORTS = """table ip cni_hostport { # handle 3
	comment "CNI portmap plugin"
	chain hostports { # handle 1
		tcp dport 8080 dnat to 10.77.0.2:80 comment "77ad" # handle 11
	}

	chain masquerading { # handle 10
		ip saddr 127.0.0.1 ip daddr 10.77.0.2 masquerade comment "77ad" # handle 13
	}
}
"""
TABLE = "inet cni_plugins_masquerade"


def test_masquerading() -> None:
    """It tells network and container; what is shown is what `nft delete` wants."""
    assert list(parse_nft_rules(MASQUERADE, TABLE)) == [
        Trace(network="lan", container_id="77ad", what=f"nft rule {TABLE} masq_checks handle 6")
    ]


def test_ports() -> None:
    """They tell the container."""
    table = "ip cni_hostport"
    assert list(parse_nft_rules(HOST_PORTS, table)) == [
        Trace(network=ANY_NETWORK, container_id="77ad", what=f"nft rule {table} {place}")
        for place in ("hostports handle 11", "masquerading handle 13")
    ]


def test_a_comment_that_is_cut_off() -> None:
    """Whose it is cannot be told: the ID comes last."""
    cut = f"a442bdc0d9fc678e-dc3bd8e4efb06479, net: {'n' * 66}, if: eth0, id: 77ad"
    assert len(cut) == 127 - 1
    for comment, found in ((cut, 2), (f"{cut}7", 1)):
        assert len(list(parse_nft_rules(MASQUERADE.replace("an operator's", comment), TABLE))) == found


async def test_tables_that_are_not_there() -> None:
    """Nor is nftables on every host."""
    assert await find_nft_rules("false") == ()
    assert await find_nft_rules("/nonexistent") == ()
