# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The errors of labs.

LabError              any error: no root, a program that does not start, a limit that has passed
├── MissingPrograms   a program the lab needs is not on this machine
└── CommandFailed     a command run inside ended with another status than 0
"""

from collections.abc import Sequence


class LabError(Exception):
    """The lab cannot do what was requested; the message says why, with the output of what failed."""


class MissingPrograms(LabError):
    """A program that the lab needs is not installed.

    Attributes:
        programs: The missing programs, e.g. `("dockerd",)`.
        packages: The Debian packages that contain them, e.g. `("docker.io",)`.
    """

    def __init__(self, programs: Sequence[str], packages: Sequence[str]) -> None:
        super().__init__(f"{', '.join(programs)} not found; on Debian: apt-get install {' '.join(packages)}")
        self.programs = tuple(programs)
        self.packages = tuple(packages)


class CommandFailed(LabError):
    """A command run in the lab failed.

    Attributes:
        argv: The command.
        returncode: Its exit status; negative: the signal that ended it.
        stdout: Its standard output.
        stderr: Its standard error.
    """

    def __init__(self, argv: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        output = "".join(f"\n{text.rstrip()}" for text in (stdout, stderr) if text.strip())
        super().__init__(f"{' '.join(argv)}: exit status {returncode}{output}")
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
