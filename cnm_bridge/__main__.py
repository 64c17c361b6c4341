# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m cnm_bridge` is `cni-bridge`."""

from cnm_bridge.cli.main import main

if __name__ == "__main__":
    main(prog_name="cni-bridge")
