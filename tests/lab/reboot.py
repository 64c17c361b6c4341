# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The end of a boot of a lab, as far as a lab can reboot."""

from typing import Final

from tests.lab.lab import Lab

_END: Final = r"""
for process in /proc/[0-9]*; do
    case "${process#/proc/} $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" in
    "1 "* | "$$ "* | *connector.py*) ;;
    *) kill -KILL "${process#/proc/}" 2>/dev/null ;;
    esac
done
set -e
sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .*/\1/p' /proc/self/mountinfo | sort -r |
    grep -E '^/(run/(cni-bridge[^/]*|docker|netns)|var/lib/docker)/' | while read -r point; do umount -l "$point"; done
rm -rf /run/cni-bridge* /run/cni /run/docker /run/docker.* /run/containerd /run/unreliable
for link in $(ip -o link show | sed -n 's/^[0-9]*: \([^:@]*\).*/\1/p'); do
    [ "$link" = lo ] || ip link del "$link" 2>/dev/null || :
done
for tables in iptables ip6tables; do
    for table in filter nat mangle raw; do "$tables" -t "$table" -F; "$tables" -t "$table" -X; done
    "$tables" -P FORWARD ACCEPT
done
printf '00000000-0000-0000-0000-%012d\n' "$number" >/run/lab/boot-id
[ "$number" != 1 ] || mount --bind /run/lab/boot-id /proc/sys/kernel/random/boot_id
"""


def end_boot(lab: Lab, number: int) -> None:
    """End everything in a lab but its own processes, remove what a reboot removes, and change the boot ID.

    Args:
        lab: A lab whose dockerd and daemon have been stopped.
        number: How many boots have ended with this one.
    """
    lab.run("sh", "-c", _END, env={"number": str(number)})
