# SPDX-License-Identifier: Apache-2.0
"""Results of all versions of the specification: typed, and converted."""

from cni_invoker.results.result import Dns, Interface, IpAssignment, Route

__all__ = ["Dns", "Interface", "IpAssignment", "Route"]
