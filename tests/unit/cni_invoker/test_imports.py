# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What importing the library loads, and which names it has."""

import subprocess
import sys

import cni_invoker
from cni_invoker import advanced, errors

LOADED = "import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def loaded(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has after a statement."""
    command = (sys.executable, "-c", LOADED.format(statement=statement))
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def test_the_library_needs_the_standard_library_only() -> None:
    """All of its names together load no other distribution, and nothing of the daemon."""
    names = ", ".join(cni_invoker.__all__)
    ours = loaded(f"import cni_invoker.advanced; from cni_invoker import {names}") - loaded("pass")
    assert {name for name in ours if name not in sys.stdlib_module_names} == {"cni_invoker"}


def test_importing_the_package_alone_loads_no_runtime() -> None:
    """Plugins and short commands do not pay for what they do not use."""
    assert (loaded("import cni_invoker") - loaded("pass")).isdisjoint({"asyncio", "subprocess", "ipaddress"})


def test_a_runtime_loads_what_it_needs() -> None:
    """What only a failure or another class needs is not loaded with it."""
    needless = {"base64", "click", "decimal", "difflib", "hashlib", "platform", "shutil"}
    statement = "from cni_invoker import Runtime; Runtime('/opt/cni/bin')"
    assert (loaded(statement) - loaded("import asyncio")).isdisjoint(needless)


def test_exported_names() -> None:
    """Each exported name can be imported, is listed, and is defined where its home says."""
    assert len(cni_invoker.__all__) <= 56
    assert sorted(name for names in cni_invoker._HOMES.values() for name in names) == sorted(cni_invoker.__all__)
    for name in cni_invoker.__all__:
        assert getattr(cni_invoker, name) is not None
        assert name in dir(cni_invoker)


def test_no_name_is_exported_twice() -> None:
    """A name has one public home; an error may have two."""
    assert not {*advanced.__all__} & {*cni_invoker.__all__, *errors.__all__}
