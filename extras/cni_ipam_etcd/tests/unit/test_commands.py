# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What an operator cannot release by mistake."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cni_ipam_etcd.commands import commands


@pytest.mark.parametrize(
    "options", [("--node", ""), ("--node", "db3/lan"), ("--node", "db3", "--container", "")], ids=" ".join
)
def test_what_is_no_name_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    """An empty variable of a script, or a part of a key, would name what others have; no etcd is asked."""
    done = CliRunner().invoke(commands, ["release", *options, "--force", "--config", str(tmp_path / "none")])
    assert (done.exit_code, "is not a name" in done.output) == (2, True)
