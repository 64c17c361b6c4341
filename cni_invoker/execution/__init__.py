# SPDX-License-Identifier: Apache-2.0
"""One execution of a plugin: its request, its process, its limits."""
