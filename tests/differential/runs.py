# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs many cases with both runtimes, in several processes."""

import asyncio
import base64
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cni_invoker import (
    Attachment,
    AttachmentKey,
    CniError,
    ConfigurationDirectories,
    Limits,
    NetworkConfigurationList,
    Runtime,
)
from cni_invoker.execution import executor
from cni_invoker.execution.process import Ended
from cni_tool import CachedRuntime, FileCache
from tests.differential.answers import PLUGINS
from tests.differential.cases import make_case
from tests.differential.compare import Difference, compare, find_class, load_classes
from tests.differential.libcni import ENVIRONMENT, Libcni


class _Recorder:
    """Stands for the execution of plugins: returns a case's answers and remembers what plugins would have received."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.executions: list[dict[str, Any]] = []

    async def run_program(
        self, argv: Sequence[str], environment: Mapping[str, str], stdin: bytes, *_: Any, **__: Any
    ) -> Ended:
        plugin, verb = Path(argv[0]).name, environment["CNI_COMMAND"]
        self.executions.append(
            {"plugin": plugin, "environment": dict(environment), "stdin": base64.b64encode(stdin).decode()}
        )
        given = self.answers.get(plugin, {}).get(verb, {"status": 0, "stdout": "", "stderr": ""})
        return Ended(
            status=given["status"],
            timed_out=False,
            stdout=base64.b64decode(given["stdout"]),
            stdout_complete=True,
            stderr=base64.b64decode(given["stderr"]),
            duration_s=0.0,
        )


async def run_case(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an observation of loading the configuration, and one for each operation."""
    recorder = _Recorder()
    run_program = executor.run_program  # type: ignore[attr-defined]
    executor.run_program = recorder.run_program  # type: ignore[attr-defined]
    try:
        return await _run_case(request, recorder)
    finally:
        executor.run_program = run_program  # type: ignore[attr-defined]


async def _run_case(request: dict[str, Any], recorder: _Recorder) -> list[dict[str, Any]]:
    cache_dir = Path(request["cacheDir"])
    limits = Limits(retry_pauses_s=())
    runtime = Runtime(request["pluginDirs"], limits, environment=ENVIRONMENT)
    cached = CachedRuntime(runtime, FileCache(cache_dir), boot_id="this")
    try:
        network = ConfigurationDirectories(request["confDir"]).index().find(request["network"])
    except CniError as exc:
        return [_failed(exc)]
    loaded = {
        "name": network.name,
        "cniVersion": network.cni_version,
        "disableCheck": network.disable_check,
        "disableGC": network.disable_gc,
        "plugins": [plugin.type for plugin in network.plugins],
    }
    observations: list[dict[str, Any]] = [{"value": loaded}]
    for operation in request["operations"]:
        recorder.executions = []
        try:
            seen: dict[str, Any] = {"value": await _perform((runtime, cached), recorder, network, request, operation)}
        except CniError as exc:
            seen = _failed(exc)
        results = cache_dir / "results"
        seen["executions"] = recorder.executions
        seen["records"] = {
            file.name: base64.b64encode(file.read_bytes()).decode()
            for file in (sorted(results.iterdir()) if results.exists() else ())
        }
        observations.append(seen)
    return observations


def _failed(exc: CniError) -> dict[str, Any]:
    return {"error": str(exc), "code": exc.code, "msg": exc.msg, "details": exc.details, "kind": type(exc).__name__}


async def _perform(
    runtimes: tuple[Runtime, CachedRuntime],
    recorder: _Recorder,
    network: NetworkConfigurationList,
    request: dict[str, Any],
    operation: dict[str, Any],
) -> Any:
    runtime, cached = runtimes
    attachment = None
    kind = operation["op"]
    if kind in {"add", "check", "del"}:
        attachment = Attachment(
            container_id=request["containerID"],
            ifname=request["ifname"],
            netns=request["netns"],
            args=tuple((key, value) for key, value in request["args"]),
            capability_args=request["capabilityArgs"],
        )
    record = Path(request["cacheDir"]) / "results" / f"{network.name}-{request['containerID']}-{request['ifname']}"
    match kind, attachment:
        case "answers", _:
            recorder.answers = operation["answers"]
        case "add", Attachment():
            return (await cached.add(network, attachment)).document
        case "check", Attachment():
            await cached.check(network, attachment)
        case "del", Attachment():
            await cached.delete(network, attachment)
        case "gc", _:
            valid = operation["valid"]
            await cached.gc(
                network, [AttachmentKey(container_id=one["containerID"], ifname=one["ifname"]) for one in valid]
            )
        case "status", _:
            await runtime.status(network)
        case "version", _:
            return list((await runtime.version(network.plugins[0].type)).supported)
        case "truncate", _ if _exists(record):
            content = record.read_bytes()
            record.write_bytes(content[: len(content) * operation["percent"] // 100])
        case "replace", _:
            _replace(record, base64.b64decode(operation["content"]))
        case _:
            pass
    return None


def _exists(record: Path) -> bool:
    try:
        return record.exists()
    except OSError:  # the name is too long
        return False


def _replace(record: Path, content: bytes) -> None:
    with suppress(OSError):  # the name may be too long
        record.write_bytes(content)


_SHARE: Final = 500
"""How many cases a process runs at a time."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What many cases have shown.

    Attributes:
        equal: How many had no difference at all.
        classes: How many cases had differences of a class.
        unknown: The differences of no class, each with its case.
    """

    equal: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    unknown: list[tuple[str, Difference]] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        """Add what other cases have shown."""
        self.equal += other.equal
        self.classes += other.classes
        self.unknown += other.unknown


def run_cases(driver: Path, seed: int, numbers: Sequence[int], processes: int) -> Outcome:
    """Run cases.

    Args:
        driver: The executable with libcni.
        seed: Chooses the cases.
        numbers: Their numbers.
        processes: How many run at once; 1: in this process.
    """
    shares = [numbers[start : start + _SHARE] for start in range(0, len(numbers), _SHARE)]
    outcome = Outcome()
    if processes == 1:
        for share in shares:
            outcome.add(_run_share(driver, seed, share))
        return outcome
    with ProcessPoolExecutor(processes) as pool:
        for one in pool.map(_run_share, *zip(*((driver, seed, share) for share in shares), strict=True)):
            outcome.add(one)
    return outcome


def _run_share(driver: Path, seed: int, numbers: Iterable[int]) -> Outcome:
    with _quiet(), tempfile.TemporaryDirectory(dir=_memory()) as directory, Libcni(driver) as libcni:
        return asyncio.run(_run(Path(directory), libcni, seed, numbers))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the library logs about broken files from being printed."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def _memory() -> str | None:
    """Return a directory in memory, if there is one: cni_invoker waits for the disk."""
    memory = Path("/dev/shm")  # a unique directory is made there
    return str(memory) if memory.is_dir() else None


async def _run(directory: Path, libcni: Libcni, seed: int, numbers: Iterable[int]) -> Outcome:
    plugin_dir = directory / "plugins"
    plugin_dir.mkdir()
    for plugin in PLUGINS:
        (plugin_dir / plugin).touch(mode=0o755)  # nothing executes them
    classes = load_classes()
    outcome = Outcome()
    for number in numbers:
        case = make_case(seed, number)
        place = directory / "case"
        for name, content in case.files.items():
            file = place / "net.d" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for cache in ("libcni", "ours"):
            (place / cache / "results").mkdir(parents=True)
        shared = {**case.request, "confDir": str(place / "net.d"), "pluginDirs": [str(plugin_dir)]}
        libcni.send({**shared, "cacheDir": str(place / "libcni")})
        ours = await run_case({**shared, "cacheDir": str(place / "ours")})
        differences = list(compare(case, libcni.receive(), ours))
        found = {one: find_class(one, classes) for one in differences}
        outcome.equal += not differences
        outcome.classes.update({known.name for known in found.values() if known is not None})
        outcome.unknown += [(case.name, one) for one, known in found.items() if known is None]
        shutil.rmtree(place, ignore_errors=True)
    return outcome
