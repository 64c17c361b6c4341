# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m cnm_plugin`."""

from cnm_plugin.plugin import main

if __name__ == "__main__":
    main()
