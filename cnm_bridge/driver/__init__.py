# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What happens to a container's network: from CreateEndpoint to the end of a teardown, and recovery."""
