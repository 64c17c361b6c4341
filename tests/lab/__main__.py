# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab [--no-dockerd] [-- COMMAND…]`: a lab on the command line."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from tests.lab.editions import find_engine, find_plugins
from tests.lab.errors import LabError
from tests.lab.lab import Lab


def main(arguments: Sequence[str]) -> int:
    """Start a lab, run a command in it, and return the command's exit status as a shell does."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab",
        description="Run COMMAND on a private Docker host, which is removed completely when COMMAND ends. "
        "Its /etc, /opt, /run and /var/lib are its own; every other directory is the machine's.",
        epilog="Inside, dockerd has the image `busybox`, its log is /run/lab/dockerd.log, and CNI_BRIDGE_LAB=1 is set.",
    )
    parser.add_argument("--no-dockerd", action="store_true", help="make only the namespaces")
    parser.add_argument("--engine", metavar="VERSION", help="a Docker engine other than the machine's, e.g. 28.5")
    parser.add_argument("--plugins", metavar="VERSION", help="CNI plugins other than the machine's, e.g. 1.9")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="default: an interactive shell")
    options = parser.parse_args(arguments)
    try:
        engine = find_engine(options.engine) if options.engine else None
        plugins = find_plugins(options.plugins) if options.plugins else None
        with Lab(dockerd=not options.no_dockerd, engine=engine, plugins=plugins) as lab:
            return run(lab, options.command or [os.environ.get("SHELL") or "/bin/sh"])
    except LabError as exc:
        print(f"{parser.prog}: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run(lab: Lab, command: Sequence[str]) -> int:
    """Run a command with our terminal and our standard streams, and wait for it in spite of Ctrl-C."""
    # Ctrl-C goes to the terminal's whole process group, and the command handles it. A handler of ours, unlike SIG_IGN,
    # is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGQUIT, lambda *_: None)
    status = lab.namespaces.popen(command, foreground=True, stdin=None).wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
