# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge doctor`: examines a host, before and after the installation; needs no daemon and changes nothing.

`gathering` reads facts from the host, `checks` turns facts into findings and is pure, `report` renders them.
"""
