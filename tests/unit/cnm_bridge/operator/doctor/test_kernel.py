# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which modules the kernel has, by its files."""

import os
from pathlib import Path

from cnm_bridge.operator.doctor.facts import ModuleState
from cnm_bridge.operator.doctor.kernel import gather_kernel

NEEDED = ("bridge", "veth", "8021q", "ipvlan", "sch_tbf")


def make_root(path: Path, *, modules: str, has_lists: bool) -> Path:
    """Make the files of a kernel."""
    (path / "proc/sys/net/ipv4").mkdir(parents=True)
    (path / "proc/sys/net/ipv4/ip_forward").write_text("1\n")
    (path / "proc/modules").write_text(modules)
    (path / "sys/module/veth").mkdir(parents=True)
    directory = path / "lib/modules" / os.uname().release
    if has_lists:
        directory.mkdir(parents=True)
        (directory / "modules.builtin").write_text("kernel/net/bridge/bridge.ko\n")
        (directory / "modules.dep").write_text("kernel/net/8021q/8021q.ko.xz: x.ko\nkernel/net/sched/sch-tbf.ko:\n")
    return path


def test_modules_are_loaded_built_in_or_on_disk(tmp_path: Path) -> None:
    """A dash in a file's name is an underscore in the module's."""
    found = gather_kernel(NEEDED, root=make_root(tmp_path, modules="veth 1 0\n", has_lists=True))
    missing = {name for name, state in found.modules.items() if state is not ModuleState.USABLE}
    assert missing == {"ipvlan"}
    assert found.modules["ipvlan"] is ModuleState.MISSING
    assert found.sysctls == {"net.ipv4.ip_forward": "1"}


def test_the_modules_were_removed_by_an_upgrade(tmp_path: Path) -> None:
    """What is loaded can be used; nothing else can be loaded."""
    found = gather_kernel(NEEDED, root=make_root(tmp_path, modules="veth 1 0\n", has_lists=False))
    assert found.modules == {name: ModuleState.USABLE if name == "veth" else ModuleState.UNREACHABLE for name in NEEDED}


def test_a_kernel_without_modules(tmp_path: Path) -> None:
    """Nothing lists what is built in, so there is no state."""
    found = gather_kernel(NEEDED, root=make_root(tmp_path, modules="", has_lists=False))
    assert found.modules == {"veth": ModuleState.USABLE}
