# SPDX-License-Identifier: Apache-2.0
"""`python -m cni_tool` is `cni-invoker`."""

from cni_tool.command import main

main()
