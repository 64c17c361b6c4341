# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge install-spec`: writes a plugin spec file, by which Docker finds a driver.

Docker looks for `/run/docker/plugins/NAME.sock` first, then for `NAME.spec` (an address) and `NAME.json` (an address
with TLS) in `/etc/docker/plugins`. Source: moby, `pkg/plugins/discovery.go`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.cli.command import Command
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.exit_status import ExitStatus, describe_failure
from cnm_bridge.operator.cli.settings.types import Directory, File
from cnm_bridge.operator.whole_file import write_whole

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SOCKETS: Final = Path("/run/docker/plugins")
_SHOWN: Final = 100
_SUFFIXES: Final = (".spec", ".json")


@click.command(
    "install-spec",
    cls=Command,
    examples=(
        "install-spec unix:///run/cni-bridge.sock",
        "install-spec --name remote --replace tcp://127.0.0.1:9000",
    ),
    exits={
        ExitStatus.FINE: "The file is there.",
        ExitStatus.FINDINGS: "It was not written.",
        ExitStatus.USAGE: "An option is wrong.",
    },
    see_also=("serve",),
)
@click.option("--name", default="cni-bridge", show_default=True, help="The driver's name in Docker.")
@click.option(
    "--directory",
    type=Directory(),
    default=Path("/etc/docker/plugins"),
    show_default=True,
    help="Directory of the spec files of Docker.",
)
@click.option("--tls-ca", type=File(), help="For https://…: certificate of the authority of the daemon's certificate.")
@click.option("--tls-cert", type=File(), help="For https://…: Docker's client certificate.")
@click.option("--tls-key", type=File(), help="For https://…: its private key.")
@click.option("--replace", is_flag=True, help="Replace a spec file of this name that points elsewhere.")
@click.argument("address")
def install_spec(
    *,
    name: str,
    directory: Path,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    replace: bool,
    address: str,
) -> None:
    """Write the file by which Docker finds the driver at ADDRESS: unix:///PATH, tcp://HOST:PORT or https://HOST:PORT.

    Docker prefers a socket of the same name in /run/docker/plugins.
    """
    try:
        suffix, content = _render(name, address, {"CAFile": tls_ca, "CertFile": tls_cert, "KeyFile": tls_key})
        file = directory / f"{name}{suffix}"
        if not replace:
            _refuse_other(file, content, _files(directory, name))
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_whole(file, content.encode(), mode=0o644)
        for other in _files(directory, name):
            if other != file:
                other.unlink()
    except (Refused, OSError) as exc:
        echo(f"cni-bridge: {describe_failure(exc)}", err=True)
        sys.exit(1)
    echo(str(file))
    if (_SOCKETS / f"{name}.sock").exists():
        echo(f"cni-bridge: Docker uses {_SOCKETS}/{name}.sock as long as that exists", err=True)


def _render(name: str, address: str, tls: dict[str, Path | None]) -> tuple[str, str]:
    """Return the suffix and the content of the spec file.

    Raises:
        Refused: Name, address and TLS files do not fit together, or a TLS file does not exist.
    """
    if _NAME.fullmatch(name) is None:
        raise Refused(f"{name!r} cannot be the name of a driver: letters, digits, _, . and - are allowed")
    url = urlsplit(address)
    given = {key: path.absolute() for key, path in tls.items() if path is not None}
    if url.scheme == "https" and url.netloc:
        if len(given) < len(tls):
            raise Refused("an https address needs --tls-ca, --tls-cert and --tls-key")
        for path in given.values():
            if not path.is_file():
                raise Refused(f"{path} does not exist, or is not a file")
        options = {"InsecureSkipVerify": False, **{key: str(path) for key, path in given.items()}}
        return ".json", json.dumps({"Name": name, "Addr": address, "TLSConfig": options}, indent=2) + "\n"
    if given:
        raise Refused(f"{address} is an address without TLS; write https://HOST:PORT, or leave out --tls-…")
    is_unix = url.scheme == "unix" and not url.netloc and url.path.startswith("/")
    if not is_unix and not (url.scheme == "tcp" and url.netloc):
        raise Refused(f"{address!r} is neither unix:///PATH nor tcp://HOST:PORT nor https://HOST:PORT")
    return ".spec", f"{address}\n"


def _files(directory: Path, name: str) -> list[Path]:
    """Return the spec files of the name that exist."""
    return [file for suffix in _SUFFIXES if (file := directory / f"{name}{suffix}").exists()]


def _refuse_other(file: Path, content: str, existing: list[Path]) -> None:
    """Refuse to change what Docker knows of the name."""
    for other in existing:
        found = other.read_text("utf-8", "replace")
        if other != file or found != content:
            raise Refused(
                f"{other} points elsewhere, to {_target(found)}; nothing was changed. To replace it, use --replace; to "
                "keep both, give this one another --name"
            )


def _target(content: str) -> str:
    """Return the address in a spec file of either form, as far as it can be read."""
    try:
        return str(json.loads(content)["Addr"])
    except (ValueError, TypeError, KeyError):
        return content.strip()[:_SHOWN] or "nothing"
