# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How commands print: tables on a terminal, plain text in a pipe, JSON, or lines made with a template."""
