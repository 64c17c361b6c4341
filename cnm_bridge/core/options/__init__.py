# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options of networks and endpoints, and what they mean for the plugins; pure.

What is invalid, or has no effect, is a `BadOption` that names the option and says what to give.
"""
