# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m cni_ipam_etcd`."""

from cni_ipam_etcd.plugin import main

if __name__ == "__main__":
    main()
