# SPDX-License-Identifier: Apache-2.0
"""JSON documents: typed access to their values, and the schemas of those that CNI defines."""
