#!/usr/bin/env -S python3 -I -S
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A CNI plugin that does only what its configuration file says, and records its calls.

It is copied under the name of a plugin. `<name>.json` beside it has the behaviour for each verb; of a list, each call
uses the next entry, and further calls the last one. `commands.jsonl` beside it gets one line per call. It needs only
the standard library, so that it can run anywhere, and imports little of it: the tests start it thousands of times.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final, NoReturn, TypedDict

    class Behaviour(TypedDict, total=False):
        """The behaviour in one call; the keys that are present are carried out in this order.

        Without a key that prints, it prints an empty result in the version of the request; for VERSION, all versions.

        Attributes:
            read_stdin: False: leave the standard input unread.
            ignore_sigterm: True: do not end at SIGTERM.
            leave_behind_s: Leave a process behind that keeps the outputs open for this time.
            stderr: Text for the standard error.
            stderr_bytes: The size of further text for it, in lines of 100 characters.
            addresses: In ADD, assign the first of these that is free, without its prefix length, and print it; without
                one, print an error. In DEL, release the container's when `wait_for` has ended.
            sleep_s: Wait for this time.
            wait_for: Wait until this file exists. With `addresses`, `{address}` in it is the container's address; if it
                has none, there is no wait.
            delegate: True: become the plugin in `ipam.type`, found in CNI_PATH; the keys below have no effect.
            result: Print this result.
            passthrough: True: print prevResult.
            inject_dns: Print prevResult with this as its `dns`.
            supportedVersions: Print these, as for VERSION.
            error: Print this CNI error, and end with status 1.
            stdout: Text for the standard output.
            stdout_bytes: The size of further text for it.
            signal: Kill this process with this signal.
            exit: End with this status.
        """

        read_stdin: bool
        ignore_sigterm: bool
        leave_behind_s: float
        stderr: str
        stderr_bytes: int
        addresses: list[str]
        sleep_s: float
        wait_for: str
        delegate: bool
        result: object
        passthrough: bool
        inject_dns: object
        supportedVersions: list[str]  # as it is on the wire
        error: Mapping[str, object]
        stdout: str
        stdout_bytes: int
        signal: int
        exit: int


VERSIONS: Final = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]

PRINTS: Final = frozenset(
    {"result", "passthrough", "inject_dns", "supportedVersions", "error", "stdout", "stdout_bytes"}
)


def read(path: str) -> str:
    """Return the text of a file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def choose(path: str, verb: str, log: str) -> Behaviour:
    """Return the behaviour in this call."""
    name, file = os.path.basename(path), f"{path}.json"
    behaviours: Mapping[str, Behaviour | list[Behaviour]] = json.loads(read(file)) if os.path.exists(file) else {}
    wanted = behaviours.get(verb, {"supportedVersions": VERSIONS} if verb == "VERSION" else {})
    if not isinstance(wanted, list):
        return wanted
    earlier = [json.loads(line) for line in read(log).splitlines()] if os.path.exists(log) else []
    calls = sum(record["plugin"] == name and record["verb"] == verb for record in earlier)
    chosen: Behaviour = wanted[min(calls, len(wanted) - 1)]
    return chosen


def record_call(log: str, record: Mapping[str, object]) -> None:
    """Append a line to the log in one write, as plugins may run at the same time."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, json.dumps(record).encode() + b"\n")
    os.close(descriptor)


def leave_behind(seconds: float) -> int:
    """Leave a process behind that has the outputs open; return its ID."""
    child = os.fork()
    if child == 0:
        time.sleep(seconds)
        os._exit(0)
    return child


def inode_of(netns: str) -> int | None:
    """Return the inode of the namespace that is mounted at a path, None if nothing is there."""
    try:
        return os.stat(netns).st_ino if netns else None
    except OSError:
        return None


def take(links: str, address: str, verb: str) -> bool:
    """Return whether a container has an address: in ADD, the container gets it if it is free."""
    container, link = os.environ["CNI_CONTAINERID"], links + address
    try:
        if verb == "ADD":
            os.symlink(container, link)
        return os.readlink(link) == container
    except OSError:  # another container has it, or none
        return False


def delegate(asked: Mapping[str, object]) -> NoReturn:
    """Become the IPAM plugin, with the same input and environment (CNI SPEC section 4)."""
    ipam = asked.get("ipam")
    plugin_type = str(ipam["type"]) if isinstance(ipam, dict) else ""
    paths = (f"{directory}/{plugin_type}" for directory in os.environ["CNI_PATH"].split(":"))
    found = next(path for path in paths if os.path.isfile(path))
    stdin = os.memfd_create("stdin")
    os.write(stdin, json.dumps(asked).encode())
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    os.execv(found, (found,))  # noqa: S606  # no shell is wanted


def print_json(value: object) -> None:
    """Print a JSON value."""
    sys.stdout.write(json.dumps(value) + "\n")


def answer(behaviour: Behaviour, asked: Mapping[str, object]) -> int:
    """Print the answer; return the exit status."""
    previous = asked.get("prevResult")
    version = asked.get("cniVersion", "0.1.0")
    if "result" in behaviour:
        print_json(behaviour["result"])
    elif PRINTS.isdisjoint(behaviour):
        print_json({"cniVersion": version})
    if behaviour.get("passthrough"):
        print_json(previous)
    if "inject_dns" in behaviour and isinstance(previous, dict):
        print_json({**previous, "dns": behaviour["inject_dns"]})
    if "supportedVersions" in behaviour:
        print_json({"cniVersion": version, "supportedVersions": behaviour["supportedVersions"]})
    if "error" in behaviour:
        print_json({"cniVersion": version, **behaviour["error"]})
    sys.stdout.write(behaviour.get("stdout", ""))
    sys.stdout.write("x" * behaviour.get("stdout_bytes", 0))
    sys.stdout.flush()
    return behaviour.get("exit", 1 if "error" in behaviour else 0)


def main() -> None:
    """Act as the plugin whose name this file has."""
    path = sys.argv[0]
    verb = os.environ.get("CNI_COMMAND", "")
    log = os.path.join(os.path.dirname(path), "commands.jsonl")
    behaviour = choose(path, verb, log)
    asked = json.loads(sys.stdin.read()) if behaviour.get("read_stdin", True) else {}
    if behaviour.get("ignore_sigterm"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record = {
        "plugin": os.path.basename(path),
        "verb": verb,
        "argv": sys.argv,
        "environment": {key: value for key, value in os.environ.items() if key.startswith(("CNI_", "TRACE", "BAGG"))},
        "stdin": asked,
        "pid": os.getpid(),
        "netns_inode": inode_of(os.environ.get("CNI_NETNS", "")),
        "left_behind": leave_behind(behaviour["leave_behind_s"]) if "leave_behind_s" in behaviour else None,
    }
    record_call(log, record)
    sys.stderr.write(behaviour.get("stderr", ""))
    sys.stderr.write(("x" * 99 + "\n") * (behaviour.get("stderr_bytes", 0) // 100))
    sys.stderr.flush()
    address = next((one for one in behaviour.get("addresses", ()) if take(f"{path}.", one, verb)), None)
    time.sleep(behaviour.get("sleep_s", 0))
    wait_for = behaviour.get("wait_for", "")
    if "addresses" in behaviour:
        wait_for = wait_for.replace("{address}", address) if address else ""
    while wait_for and not os.path.exists(wait_for):
        time.sleep(0.01)
    if "addresses" in behaviour and verb == "ADD":
        if address:
            behaviour["result"] = {"cniVersion": asked["cniVersion"], "ips": [{"address": f"{address}/24"}]}
        else:
            behaviour["error"] = {"code": 100, "msg": "no address is available"}
    elif address:
        os.unlink(f"{path}.{address}")
    if behaviour.get("delegate"):
        delegate(asked)
    status = answer(behaviour, asked)
    if "signal" in behaviour:
        os.kill(os.getpid(), behaviour["signal"])
    os._exit(status)


if __name__ == "__main__":
    main()
