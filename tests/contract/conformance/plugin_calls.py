# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about the other side: how a plugin reads a call, and what it answers (libcni's `pkg/skel` and `pkg/types`)."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_list, get_object, get_objects, get_str, get_strings, parse_json
from cni_invoker import Result
from cni_invoker.errors import BadResult
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import Scene

__all__ = ["RUNNERS"]

VARIABLES: Final = {
    "CNI_CONTAINERID": "some-container-id",
    "CNI_NETNS": "/some/netns/path",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "some=extra;args=",
    "CNI_PATH": "/some/cni/path",
}
CALLED: Final = "called"
"""What the functions of the plugin print on standard error."""
PROGRAM: Final = """
import sys
from cni_invoker.plugin import CallError, run_plugin

def done(call):
    sys.stderr.write("called " + repr(dict(call.args)))
    {statement}

run_plugin(add=done, delete=done, check=done, gc=done, versions={versions!r}, about={about!r})
"""


RESULT: Final = "return {'ips': [{'address': '10.1.0.9/24'}]}"


def call(
    scene: Scene,
    verb: str,
    variables: Mapping[str, str] = VARIABLES,
    *,
    config: Mapping[str, object] = {},
    statement: str = RESULT,
    versions: tuple[str, ...] = ("0.1.0", "0.4.0", "1.1.0"),
    about: str = "",
) -> tuple[JsonObject, str]:
    """Execute a plugin; return the error that it answers, empty if it succeeds, and its standard error."""
    program = scene.directory / "plugin.py"
    program.write_text(PROGRAM.format(statement=statement, versions=versions, about=about), "utf-8")
    document = {"name": "skel-test", "cniVersion": "1.1.0", "some": "config", "prevResult": {}, **config}
    stdin = {key: value for key, value in document.items() if value is not None}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CNI_")}
    ended = subprocess.run(
        [sys.executable, program],
        input=json.dumps(stdin).encode(),
        env={**kept, "PYTHONPATH": os.pathsep.join(sys.path), **({"CNI_COMMAND": verb} if verb else {}), **variables},
        capture_output=True,
        check=False,
    )
    error = as_object(parse_json(ended.stdout), "it") if ended.returncode else {}
    return error, ended.stderr.decode()


async def variables(case: Case, scene: Scene) -> None:
    """A variable that a verb needs is named if it is missing; CNI_PATH is none of them."""
    for verb, needed in get_object(case.expect, "needed").items():
        assert isinstance(needed, list)
        for name in VARIABLES:
            others = {key: value for key, value in VARIABLES.items() if key != name}
            error, said = call(scene, verb, others)
            if name in needed and name != "CNI_PATH":
                assert error["code"] == case.expect["code"]
                assert get_str(error, "msg").startswith(get_str(case.expect, "message").replace("<variable>", name)), (
                    f"{verb} without {name}"
                )
                assert CALLED not in said
            else:
                assert not error, f"{verb} without {name}"
    error, _ = call(scene, "ADD", {"CNI_CONTAINERID": "c1"})
    assert get_str(error, "msg").startswith("required env variables [CNI_NETNS,CNI_IFNAME] missing")


async def values(case: Case, scene: Scene) -> None:
    """A container ID or an interface's name that CNI does not allow is refused before the function is called."""
    for name, several in get_object(case.inputs, "invalid").items():
        for value in several if isinstance(several, list) else [several]:
            error, said = call(scene, "ADD", {**VARIABLES, name: str(value)})
            assert error["code"] == case.expect["code"], f"{name}={value}"
            assert CALLED not in said


async def versions(case: Case, scene: Scene) -> None:
    """The version of the configuration must be one of the plugin's, and have the verb."""
    for row in get_list(case.inputs, "calls"):
        assert isinstance(row, list)
        verb, version, supported, code, msg = row
        assert isinstance(verb, str)
        assert isinstance(supported, list)
        error, said = call(scene, verb, config={"cniVersion": version}, versions=tuple(map(str, supported)))
        assert (error.get("code"), error.get("msg")) == (code, msg), f"{verb} {version}: {error}"
        assert (CALLED in said) is (code is None)


async def name(case: Case, scene: Scene) -> None:
    """A name that CNI does not allow is an invalid configuration, for each verb."""
    for verb in ("ADD", "CHECK", "DEL", "GC"):
        error, said = call(scene, verb, config={"name": get_str(case.inputs, "name")})
        assert error["code"] == case.expect["code"]
        assert CALLED not in said


async def commands(case: Case, scene: Scene) -> None:
    """An unknown command is an error; without one, the plugin says what it is."""
    for command, msg in get_object(case.inputs, "commands").items():
        error, said = call(scene, command)
        assert (error["code"], error["msg"]) == (case.expect["code"], msg)
        assert CALLED not in said
    error, said = call(scene, "", about="a plugin v42")
    assert not error
    assert "a plugin v42" in said
    assert "0.1.0, 0.4.0, 1.1.0" in said
    error, _ = call(scene, "")
    assert error["code"] == case.expect["code"]


async def errors(case: Case, scene: Scene) -> None:
    """A function's error is the answer."""
    for raised, expected in get_object(case.inputs, "errors").items():
        assert isinstance(expected, list)
        code, msg = expected
        error, _ = call(scene, "ADD", statement=f"raise {raised}")
        assert error["code"] == code
        assert get_str(error, "msg").endswith(str(msg))


async def arguments(case: Case, scene: Scene) -> None:
    """All of CNI_ARGS reaches the plugin."""
    _, said = call(scene, "ADD", {**VARIABLES, "CNI_ARGS": get_str(case.inputs, "CNI_ARGS")})
    assert said.startswith("called {'foo': 'bar', 'IgnoreUnknown': '1', 'abc': ''}")


async def addresses(case: Case, _: Scene) -> None:
    """An address has the length of its prefix, and its own bits are kept."""

    def result(text: str) -> Result:
        document: dict[str, Any] = {"cniVersion": "1.0.0", "ips": [{"address": text}]}
        return Result.from_document(document)

    for text in get_strings(case.inputs, "valid"):
        assert str(result(text).ips[0].address) == text
        assert get_objects(result(text).document, "ips")[0]["address"] == text
    for text in get_strings(case.inputs, "invalid"):
        with pytest.raises(BadResult):
            result(text)


RUNNERS: Final[Mapping[str, Runner]] = {
    "call-001": variables,
    "call-002": values,
    "call-003": versions,
    "call-004": name,
    "call-005": commands,
    "call-006": errors,
    "args-002": arguments,
    "type-006": addresses,
}
