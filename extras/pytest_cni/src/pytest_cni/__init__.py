# SPDX-License-Identifier: Apache-2.0
"""`pytest --cni-plugin ./myplugin`: the clauses of the CNI specification, as tests of a plugin in any language."""

__version__ = "0.1.0"
