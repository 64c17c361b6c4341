# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A file system for containers: the host's own static busybox, so that no registry is needed."""

import io
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused

_MAGIC: Final = b"\x7fELF"
_CLASS_64: Final = 2
_PT_INTERP: Final = 3  # elf(5): the segment that names the dynamic loader


def busybox_tar(busybox: Path) -> bytes:
    """Return a tar with busybox and a link for each of its applets in /bin, and the directories a container expects.

    Raises:
        Refused: It cannot be read, is not an executable, or needs shared libraries.
    """
    try:
        program = busybox.read_bytes()
    except OSError as exc:
        raise Refused(f"cannot read {busybox}: {exc.strerror}") from exc
    if not program.startswith(_MAGIC):
        raise Refused(f"{busybox} is not an executable; install the package busybox-static")
    if _is_dynamic(program):
        raise Refused(f"{busybox} needs shared libraries; install the package busybox-static")
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
    is_64_bit = program[4] == _CLASS_64
    headers, size, count = struct.unpack_from("@32xQ14xHH" if is_64_bit else "@28xI10xHH", program)
    types = (struct.unpack_from("@I", program, headers + i * size)[0] for i in range(count))
    return _PT_INTERP in types
