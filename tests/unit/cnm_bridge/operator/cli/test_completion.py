# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What shells complete; names of containers and networks are completed in `tests/system/test_operator_commands.py`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cnm_bridge.operator.cli.main import main


def completed(shell: str, *words: str) -> list[str]:
    """Return the completions of the last word; bash and zsh have kinds, zsh and fish have help."""
    current = {"COMP_CWORD": words[-1] if shell == "fish" else str(len(words))}
    env = {"_CNI_BRIDGE_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(("cni-bridge", *words)), **current}
    output = CliRunner().invoke(main, env=env, prog_name="cni-bridge").stdout
    lines = [line for line in output.splitlines() if line]
    return lines[1::3] if shell == "zsh" else [line.partition(",")[2] for line in lines]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_keys_of_options(shell: str) -> None:
    """Those of families end with a dot, behind which the user writes a name."""
    words = ("network", "create", "blue", "-o", "cni.ba")
    assert completed(shell, *words)[0].startswith("cni.bandwidth.egress-burst=")
    assert "cni.args." in completed(shell, "explain", "--option", "cni.a")


def test_names_of_configurations(tmp_path: Path) -> None:
    """They are those of the directory on the command line."""
    for name in ("blue", "green"):
        document = {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge"}]}
        (tmp_path / f"{name}.conflist").write_text(json.dumps(document))
    nothing = ("--admin-socket", f"{tmp_path}/none", "--cni-conf-dir", str(tmp_path))
    assert completed("bash", "network", "create", *nothing, "red", "b") == ["blue"]
    assert completed("bash", "explain", *nothing, "") == ["blue", "green"]


@pytest.mark.parametrize("words", [("inspect", ""), ("ls", ""), ("cleanup", ""), ("network", "rm", "")])
def test_nothing_is_completed_without_a_daemon(words: tuple[str, ...], tmp_path: Path) -> None:
    """And no error is shown."""
    *command, last = words
    assert completed("bash", *command, "--admin-socket", f"{tmp_path}/none", last) == []
