# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A reader with nothing but the README and a new Debian gets to two containers; `make test-deb` runs this (needs root).

The machine has no network: mirrors and PyPI are reached through a proxy, and the image, which Docker would fetch from
its registry, is imported.
"""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.install.machine import Machine, fetch_root
from tests.install.packages import RELEASES
from tests.install.proxy import Proxy
from tests.lab.debian import FetchError
from tests.pages import README, read_blocks

pytestmark = pytest.mark.timeout(3600)  # packages are fetched, and one is built

ROOT: Final = Path(__file__).parents[2]
NEW: Final = ("systemd", "systemd-sysv", "dbus", "ca-certificates")
"""What a bootstrapped system has; everything else comes with the README's commands."""
CHECKOUT: Final = "/root/cni-bridge"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
MOST_COMMANDS: Final = 6
MOST_LINES: Final = 60
"""Of the installation, with what apt prints about `make`."""
APPLETS: Final = ("hostname", "httpd", "ping", "sh", "wget")


@pytest.fixture(name="machine", params=RELEASES)
def boot_machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A new system with a checkout."""
    suite = str(request.param)
    try:
        archive = fetch_root(suite, "new", NEW)
    except FetchError as exc:
        pytest.skip(f"{suite} is not available: {exc}")
    with Machine(tmp_path / suite, archive) as machine:
        copy_checkout(machine.path(CHECKOUT))
        shutil.copy(CERTIFICATES, machine.path(CERTIFICATES))
        machine.path("/etc/apt/apt.conf.d/proxy").write_text(f'Acquire::http::Proxy "{Proxy.url}";\n', "ascii")
        with Proxy(machine.path("/proc/1/ns/net")):
            yield machine


def test_the_readme(machine: Machine) -> None:
    """At most six commands, as they are printed: two containers reach each other, also by a published port."""
    install, *rest = (
        block.text for section in ("Install", "Three commands") for block in read_blocks(README, section=section)
    )
    assert len("".join((install, *rest)).splitlines()) <= MOST_COMMANDS

    lines = paste(machine, install).splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[-1] == "cni-bridge runs; next: cni-bridge network create blue --subnet 10.22.0.0/16"
    assert machine.run("which", "g++", "dh", check=False).stdout == ""
    assert machine.run("cni-bridge", "status").stdout.startswith("fine: the Docker Engine answers")
    import_image(machine)
    create, run, reach = rest
    assert paste(machine, create).startswith("Docker network blue has the list /etc/cni/net.d/blue.conflist\n")
    container = paste(machine, run).splitlines()[-1]
    printed = paste(machine, reach)
    assert "1 packets transmitted, 1 packets received" in printed
    assert printed.splitlines()[-1] == container[:12]
    machine.run("cni-bridge", "inspect", "--check")

    for block in read_blocks(README, section="And then"):
        paste(machine, block.text)
    assert not machine.path("/etc/cni/net.d/blue.conflist").exists()


def copy_checkout(directory: Path) -> None:
    """Copy the files of this checkout that git knows or would take, as an archive of them has them."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    directory.mkdir(parents=True)
    packed = subprocess.run(
        ("tar", "--create", "--null", "--files-from=-", "--owner=0", "--group=0"),
        cwd=ROOT,
        input=files,
        capture_output=True,
        check=True,
    )
    subprocess.run(("tar", "--extract"), cwd=directory, input=packed.stdout, check=True)


def paste(machine: Machine, block: str) -> str:
    """Run a block in the checkout, with the settings of a proxy, and return what it prints."""
    settings = (f"https_proxy={Proxy.url}", f"PIP_CERT={CERTIFICATES}", f"SSL_CERT_FILE={CERTIFICATES}", "HOME=/root")
    script = f"cd {CHECKOUT}\n{block}"
    return machine.run("env", *settings, "sh", "-ec", script).stdout


def import_image(machine: Machine) -> None:
    """Give the machine's dockerd the image `busybox`."""
    busybox = Path(shutil.which("busybox") or "")
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    machine.path("/root/image.tar").write_bytes(image.getvalue())
    machine.run("docker", "import", "/root/image.tar", "busybox")
