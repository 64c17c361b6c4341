# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fake CNI plugins: real executables that do as they are told and write down what they were asked."""

from tests.plugins.fake import Command, FakePlugins

__all__ = ["Command", "FakePlugins"]
