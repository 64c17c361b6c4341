# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How the endpoints of the crash tests are attached."""

from enum import StrEnum

from cni_bridge_spec import JsonObject


class Way(StrEnum):
    """How endpoints are attached. There is no engine to be asked for the networks of a container."""

    MOVE = "move"
    HYBRID = "hybrid"
    LATE_MOVE = "hybrid, changed to move at Join"
    DIRECT = "direct"

    @property
    def option(self) -> str:
        """The value of `cni.attach`."""
        return "move" if self is Way.MOVE else "sandbox"

    @property
    def endpoint_options(self) -> JsonObject:
        """The options of each endpoint: the name of a link that collides with none of Docker's needs no engine."""
        return {"com.docker.network.endpoint.ifname": "box0"} if self is Way.HYBRID else {}
