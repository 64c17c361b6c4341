# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.crash.daemon DIRECTORY serve …`: the daemon, with deadly boundaries between its effects."""

import sys
from pathlib import Path

from cnm_bridge.cli.main import main
from tests.crash.boundaries import Boundaries, install

if __name__ == "__main__":
    install(Boundaries(Path(sys.argv.pop(1))))
    main(prog_name="cni-bridge")
