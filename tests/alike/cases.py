# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What users type, with the network as the only variable."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A container, and what is done with it before it is looked at.

    Attributes:
        name: One word; the table of differences uses it.
        options: Those of `docker run`, beside `--network`, `--name` and the image.
        then: Further docker commands.
        network: The option `--network`, if it is more than the network's name.
        since: The first engine that knows the options.
        names: What is looked up in the container, beside its own name and the peer's.

    All of them may have the names `{name}` of the container, `{net}`, `{second}`, `{internal}` and `{addressed}` of
    networks and `{peer}` of a container on all of them, the addresses `{ip4}` and `{ip6}` of `{addressed}`,
    `{ip4_of_net}` of `{net}` and `{other}` of a container on `{second}`, and a `{port}` of the host.
    """

    name: str
    options: str = ""
    then: tuple[str, ...] = ()
    network: str = "{net}"
    since: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


_ENDPOINT_SYSCTLS: Final = "com.docker.network.endpoint.sysctls"
_RUN_AGAIN: Final = "run --detach --name {name} --network {net}"

CASES: Final = (
    Case(name="plain"),
    # Names
    Case(name="hostname", options="--hostname web.example"),
    Case(name="domainname", options="--hostname web --domainname example.org"),
    Case(name="alias", options="--network-alias db --network-alias cache", names=("db", "cache")),
    Case(name="link", options="--link {peer}:database", names=("database",)),
    Case(name="dns", options="--dns 10.9.9.9 --dns-search example.org --dns-option timeout:1 --dns-option attempts:1"),
    Case(
        name="add-host",
        options="--add-host other:10.9.9.8 --add-host six:fd99::8 --add-host host:host-gateway",
        names=("other", "six", "host"),
    ),
    # Addresses
    Case(name="addressed", network="{addressed}"),
    Case(name="ip", network="{addressed}", options="--ip {ip4}"),
    Case(name="ip6", network="{addressed}", options="--ip6 {ip6}"),
    Case(name="both-ips", network="{addressed}", options="--ip {ip4} --ip6 {ip6}"),
    Case(name="ip-of-plugins", options="--ip {ip4_of_net}"),
    Case(name="mac-address", options="--mac-address 02:42:0a:09:09:09"),
    Case(name="link-local-ip", options="--link-local-ip 169.254.77.7"),
    # Sysctls
    Case(
        name="sysctl-ipv4",
        options="--sysctl net.ipv4.ip_forward=0 --sysctl net.ipv4.ip_unprivileged_port_start=1024"
        " --sysctl net.ipv4.ip_local_port_range='20000 30000' --sysctl net.ipv4.ping_group_range='1 0'"
        " --sysctl net.ipv4.ip_default_ttl=99 --sysctl net.ipv4.ip_nonlocal_bind=1"
        " --sysctl net.ipv4.icmp_echo_ignore_broadcasts=0 --sysctl net.ipv4.fwmark_reflect=1",
    ),
    Case(
        name="sysctl-tcp",
        options="--sysctl net.ipv4.tcp_keepalive_time=60 --sysctl net.ipv4.tcp_fin_timeout=15"
        " --sysctl net.ipv4.tcp_syncookies=0 --sysctl net.ipv4.tcp_rmem='4096 65536 131072'"
        " --sysctl net.ipv4.tcp_tw_reuse=1 --sysctl net.core.somaxconn=1024 --sysctl net.unix.max_dgram_qlen=99",
    ),
    Case(
        name="sysctl-conf",
        options="--sysctl net.ipv4.conf.all.rp_filter=2 --sysctl net.ipv4.conf.all.arp_ignore=1"
        " --sysctl net.ipv4.conf.all.arp_announce=2 --sysctl net.ipv4.conf.all.src_valid_mark=1"
        " --sysctl net.ipv4.conf.all.route_localnet=1 --sysctl net.ipv4.conf.all.accept_redirects=0"
        " --sysctl net.ipv4.conf.all.send_redirects=0 --sysctl net.ipv4.conf.all.log_martians=1",
    ),
    Case(
        name="sysctl-conf-default",
        options="--sysctl net.ipv4.conf.default.rp_filter=2 --sysctl net.ipv4.conf.default.arp_ignore=1"
        " --sysctl net.ipv4.neigh.default.gc_thresh3=4096 --sysctl net.ipv6.conf.default.accept_ra=0",
    ),
    Case(name="sysctl-forwarding", options="--sysctl net.ipv4.conf.all.forwarding=1"),
    Case(name="sysctl-ipv6-forwarding", options="--sysctl net.ipv6.conf.all.forwarding=1"),
    Case(name="sysctl-ipv6-disabled", options="--sysctl net.ipv6.conf.all.disable_ipv6=1"),
    Case(name="sysctl-ipv6-enabled", options="--sysctl net.ipv6.conf.all.disable_ipv6=0"),
    Case(name="sysctl-ipv6-default-disabled", options="--sysctl net.ipv6.conf.default.disable_ipv6=1"),
    Case(
        name="sysctl-ipv6",
        options="--sysctl net.ipv6.conf.all.accept_ra=0 --sysctl net.ipv6.conf.all.use_tempaddr=2"
        " --sysctl net.ipv6.conf.all.accept_redirects=0 --sysctl net.ipv6.bindv6only=1",
    ),
    Case(name="sysctl-link", options="--sysctl net.ipv4.conf.eth0.log_martians=1", since=(27,)),
    # Ports
    Case(name="publish", options="--publish {port}:8080"),
    Case(name="publish-udp", options="--publish {port}:8080/udp --publish {port}:8080"),
    Case(name="publish-all", options="--expose 8080 --publish-all"),
    # The kind of container
    Case(name="cap-drop", options="--cap-drop ALL"),
    Case(name="cap-add", options="--cap-add NET_ADMIN --cap-add NET_RAW"),
    Case(name="privileged", options="--privileged"),
    Case(name="read-only", options="--read-only"),
    Case(name="user", options="--user 65534:65534"),
    Case(name="init", options="--init"),
    # The network
    Case(name="internal", network="{internal}"),
    Case(name="internal-publish", network="{internal}", options="--publish {port}:8080"),
    Case(
        name="endpoint-sysctls",
        network=f'name={{net}},"driver-opt={_ENDPOINT_SYSCTLS}=net.ipv4.conf.IFNAME.log_martians=1,'
        'net.ipv6.conf.IFNAME.accept_ra=0"',
        since=(28,),
    ),
    Case(
        name="endpoint-without-ipv6",
        network=f"name={{net}},driver-opt={_ENDPOINT_SYSCTLS}=net.ipv6.conf.IFNAME.disable_ipv6=1",
        since=(28,),
    ),
    Case(name="ifname", network="name={net},driver-opt=com.docker.network.endpoint.ifname=lan7", since=(28,)),
    Case(name="gw-priority", options="--network name={second},gw-priority=1", since=(28,)),
    Case(name="gw-priority-lower", options="--network name={second},gw-priority=-1", since=(28,)),
    Case(name="second", then=("network connect {second} {name}",)),
    Case(name="second-alias", then=("network connect --alias store {second} {name}",)),
    Case(name="second-gone", then=("network connect {second} {name}", "network disconnect {second} {name}")),
    Case(name="first-gone", then=("network connect {second} {name}", "network disconnect {net} {name}")),
    Case(name="both-restarted", then=("network connect {second} {name}", "restart --time 0 {name}")),
    Case(name="other-network", then=("exec {name} ping -c 1 -W 2 {other}",)),
    # A container's life
    Case(name="restart", then=("restart --time 0 {name}",)),
    Case(
        name="restart-ip",
        network="{addressed}",
        options="--ip {ip4} --ip6 {ip6}",
        then=("restart --time 0 {name}",),
    ),
    Case(name="restart-publish", options="--publish {port}:8080", then=("restart --time 0 {name}",)),
    Case(name="stop", then=("stop --time 0 {name}",)),
    Case(name="stop-start", then=("stop --time 0 {name}", "start {name}")),
    Case(name="pause", then=("pause {name}", "unpause {name}")),
    Case(name="rename", options="--network-alias db", then=("rename {name} {name}-new", "rename {name}-new {name}")),
    Case(name="update", then=("update --memory 64m --memory-swap 64m {name}",)),
    Case(name="disconnect", then=("network disconnect {net} {name}",)),
    Case(name="reconnect", then=("network disconnect {net} {name}", "network connect {net} {name}")),
    Case(
        name="reconnect-options",
        network="{addressed}",
        then=(
            "network disconnect {addressed} {name}",
            "network connect --alias db --ip {ip4} --ip6 {ip6} {addressed} {name}",
        ),
    ),
    Case(
        name="reconnect-link-local-ip",
        then=("network disconnect {net} {name}", "network connect --link-local-ip 169.254.77.8 {net} {name}"),
    ),
    Case(
        name="reconnect-restart",
        then=("network disconnect {net} {name}", "network connect {net} {name}", "restart --time 0 {name}"),
    ),
    Case(
        name="commit",
        options="--hostname web --network-alias db",
        then=("commit {name} {name}-image", "rm --force {name}", f"{_RUN_AGAIN} {{name}}-image"),
    ),
)
