# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge test`: two short-lived containers on a network, and what they can reach."""
