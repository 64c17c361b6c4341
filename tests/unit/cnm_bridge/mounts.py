# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the kernel says is mounted in a container."""

from pathlib import Path


def mount(process: Path, *sources: Path, at: str = "/etc/resolv.conf") -> None:
    """Let mountinfo of a process say that files of this host are mounted in its container, one over the other."""
    lines = ["20 1 0:5 / /dev rw - tmpfs tmpfs rw"]
    for number, source in enumerate(sources, start=30):
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        own = max((line for line in mounts if source.is_relative_to(line[4])), key=lambda line: len(line[4]))
        root = f"{own[3].rstrip('/')}/{source.relative_to(own[4])}".replace(" ", r"\040")
        lines.append(f"{number} 20 {own[2]} {root} {at} ro - ext4 /dev/sda1 rw")
    (process / "mountinfo").write_text("\n".join(lines))
