# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lets `python -m cnm_bridge` run the command `cni-bridge`."""

from cnm_bridge.operator.cli.main import main

if __name__ == "__main__":
    main(prog_name="cni-bridge")
