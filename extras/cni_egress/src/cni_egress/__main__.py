# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m cni_egress`."""

from cni_egress.plugin import main

if __name__ == "__main__":
    main()
