# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The containers' file system: the machine's own busybox, so that a lab needs no registry."""

import io
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tests.lab.errors import MissingPrograms

__all__ = ["busybox_tar"]

_PT_INTERP: Final = 3  # elf(5): the segment that names the dynamic loader


def busybox_tar(busybox: Path) -> bytes:
    """Return a tar with busybox and a link for each of its applets in /bin, and the directories a container expects.

    Raises:
        MissingPrograms: This busybox needs shared libraries.
    """
    program = busybox.read_bytes()
    if _is_dynamic(program):
        raise MissingPrograms((f"a static busybox ({busybox} needs shared libraries)",), ("busybox-static",))
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "root", "sys", "tmp"):
            tar.addfile(_entry(directory, tarfile.DIRTYPE))
        tar.addfile(_entry("bin/busybox", tarfile.REGTYPE, size=len(program)), io.BytesIO(program))
        for applet in applets:
            if applet != "busybox":
                tar.addfile(_entry(f"bin/{applet}", tarfile.SYMTYPE, linkname="busybox"))
    return buffer.getvalue()


def _entry(name: str, kind: bytes, *, size: int = 0, linkname: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, 0o755, size, linkname
    return entry


def _is_dynamic(program: bytes) -> bool:
    """Return whether an ELF program of this machine's byte order has an interpreter segment (elf(5))."""
    is_64_bit = program[4] == 2  # ELFCLASS64
    headers, size, count = struct.unpack_from("@32xQ14xHH" if is_64_bit else "@28xI10xHH", program)
    types = (struct.unpack_from("@I", program, headers + i * size)[0] for i in range(count))
    return _PT_INTERP in types
