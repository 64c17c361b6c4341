# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI plugin `cnm`: it drives a Docker network driver, so that other runtimes can use it; see docs/cnm.md.

It imports nothing of the daemon, because it starts anew for each call.
"""
