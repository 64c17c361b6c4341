# SPDX-License-Identifier: Apache-2.0
"""`python -m cni_invoker` is `cni-invoker`."""

from cni_invoker.cli.tool import main

main()
