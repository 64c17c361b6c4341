# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All decisions: values in, values out. Imports no room of another storey."""
