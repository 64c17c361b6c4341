# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Pure decisions: the plugins' input, the replies to Docker, and what a sandbox needs. No effects, no await."""
