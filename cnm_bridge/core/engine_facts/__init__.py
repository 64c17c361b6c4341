# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the Docker Engine reports about itself, containers and networks, as records. Pure."""
