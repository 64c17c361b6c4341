# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records, engine, kernel and plugins are compared, and made to agree."""
