# SPDX-License-Identifier: Apache-2.0
"""The pure half of the library: typed JSON, lists, attachments, results, versions, and the requests for plugins.

Nothing here waits, locks, starts a program or writes a file.
"""
