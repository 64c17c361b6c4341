# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fake CNI plugins: real executables whose behaviour a test sets, and which record their calls."""

from tests.plugins.fake import Command, FakePlugins

__all__ = ["Command", "FakePlugins"]
