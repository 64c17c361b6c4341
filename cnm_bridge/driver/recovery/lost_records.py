# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes another record for an endpoint whose own was lost, from what is known of it and what its pinned sandbox has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, NetworkId, Phase
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.model.naming import STAGING_IFNAME, alternative_name, pin_path
from cnm_bridge.core.planning.link.endpoint_replies import given_addresses
from cnm_bridge.core.planning.new_records import rebuilt_record
from cnm_bridge.system.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Makes such records; see `rebuilt_record`.

    Attributes:
        run_dir: The parent directory of staging namespaces and pins.
        boot_id: The kernel's boot ID.
    """

    kernel: Kernel
    run_dir: Path
    boot_id: str

    async def make(
        self,
        endpoint_id: EndpointId,
        *,
        network_id: NetworkId,
        phase: Phase,
        internal: bool,
        configuration: NetworkConfigurationList,
        addresses: Sequence[str],
        mac: str | None = None,
        sandbox_key: str | None = None,
    ) -> EndpointRecord:
        """Return the record, which is not stored; the attachment has the endpoint's ID.

        The addresses of the link in the pinned sandbox count, if it is there: in mode *direct* Docker knows none.

        Raises:
            KernelError: The sandbox cannot be read.
        """
        attachment_id = AttachmentId(endpoint_id)
        pin, altname = pin_path(self.run_dir, attachment_id), alternative_name(attachment_id)
        pinned_link = None
        if self.kernel.is_namespace(pin):
            name = await self.kernel.find_pinned_link(pin, STAGING_IFNAME, altname, mac)
            found = await self.kernel.look_in_sandbox(pin, altname) if name is not None else None
            addresses = (tuple(map(str, given_addresses(found))) if found is not None else ()) or addresses
            pinned_link = name or STAGING_IFNAME  # most links have that name
        return rebuilt_record(
            endpoint_id,
            network_id=network_id,
            phase=phase,
            internal=internal,
            configuration=configuration,
            addresses=addresses,
            mac=mac,
            run_dir=self.run_dir,
            boot_id=self.boot_id,
            pinned_link=pinned_link,
            sandbox_key=sandbox_key,
        )
