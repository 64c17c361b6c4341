# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge doctor`: examines a host, before and after the installation; needs no daemon and changes nothing.

Each module has one subject: it reads facts from the host (`gather_…`), and turns facts into findings (`check_…`, pure).
`facts` has the facts of all and what a finding is, and `report` renders the findings.
"""
