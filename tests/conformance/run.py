# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs a case with a runtime, and compares."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cni_bridge_spec import JsonObject, JsonValue, as_object, render_json
from tests.conformance.case import Case, Step
from tests.conformance.driver import Answer, Driver
from tests.plugins import Command, FakePlugins


def run_case(case: Case, driver: Driver, directory: Path, cache: Path) -> tuple[str, ...]:
    """Run a case and return what is not as it should be; nothing if the runtime conforms.

    Args:
        case: The case.
        driver: The runtime.
        directory: An empty directory.
        cache: Where the runtime stores its records, as libcni in `results`; it must have none.
    """
    plugins = FakePlugins(directory / "bin")
    for name, behaviour in case.plugins.items():
        plugins.install(name, **behaviour)
    _write(directory, case.files)
    failures: list[str] = []
    for number, step in enumerate(case.steps, 1):
        seen = len(plugins.commands)
        answer = _carry_out(step, driver, directory, plugins, cache)
        commands = [command for command in plugins.commands[seen:] if command.verb != "VERSION"]
        found = (*_compare_answer(step, answer, directory), *_compare_calls(step, commands, directory))
        records = _records(cache)
        if step.remembered is not None and step.remembered is not bool(records):
            found = (*found, f"records of attachments afterwards: {len(records)}")
        failures += [f"step {number} ({step.verb}): {failure}" for failure in found]
    return tuple(failures)


def _carry_out(step: Step, driver: Driver, directory: Path, plugins: FakePlugins, cache: Path) -> Answer:
    _write(directory, step.files)
    for name, behaviour in step.plugins.items():
        plugins.install(name, **as_object(behaviour, name))
    for name, mode in step.modes.items():
        path = plugins.directory / name
        path.unlink() if mode == "absent" else path.chmod(int(str(mode), 8))
    if step.record is not None:
        for file in _records(cache):
            file.write_text(step.record, "utf-8")
    variables = {
        "NETCONFPATH": str(directory / "net.d"),
        "CNI_PATH": str(plugins.directory),
        "CNI_IFNAME": step.ifname,
        **({"CNI_ARGS": step.args} if step.args else {}),
        **({"CAP_ARGS": json.dumps(step.capabilities)} if step.capabilities else {}),
        **{name: str(value) for name, value in step.inherited.items()},
    }
    return driver.run(step.verb, step.network, _netns(directory), cache, variables)


def _netns(directory: Path) -> Path:
    return directory / "netns"


def _records(cache: Path) -> tuple[Path, ...]:
    return tuple(file for file in (cache / "results").glob("*") if file.is_file())


def _write(directory: Path, files: JsonObject) -> None:
    for name, content in files.items():
        file = directory / "net.d" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else render_json(content))


def _compare_answer(step: Step, answer: Answer, directory: Path) -> Iterator[str]:
    words = f"{answer.stdout}\n{answer.stderr}"
    # What a JSON document quotes.
    plain = words.replace('\\"', '"').replace("\\\\", "\\")
    if answer.ok is not step.ok:
        yield f"it {'succeeds' if answer.ok else f'fails: {words.strip()[-300:]}'}"
    for wanted in step.output:
        if _fill(wanted, directory) not in plain:
            yield f"the output lacks {_fill(wanted, directory)!r}"
    for unwanted in step.not_output:
        if unwanted in plain:
            yield f"the output has {unwanted!r}"
    if step.result is not None and answer.ok:
        try:
            printed: JsonValue = json.loads(answer.stdout)
        except ValueError:
            yield "it prints no result"
        else:
            yield from _differences("result", step.result, printed)


def _compare_calls(step: Step, commands: Sequence[Command], directory: Path) -> Iterator[str]:
    calls = [f"{command.plugin} {command.verb}" for command in commands]
    if step.calls is not None and calls != list(step.calls):
        yield f"plugins called: {', '.join(calls) or 'none'}"
    for unwanted in step.not_called:
        if unwanted in calls:
            yield f"it calls {unwanted}"
    first = {command.plugin: command for command in reversed(commands)}
    for wanted, of_command in ((step.stdin, _stdin), (step.environment, _environment)):
        for plugin, part in wanted.items():
            if plugin not in first:
                yield f"plugin {plugin} is not called"
            else:
                yield from _differences(plugin, _filled(part, directory), of_command(first[plugin]))
    shared = {tuple(sorted(_of_attachment(command).items())) for command in commands}
    if len(shared) > 1:
        yield "plugins of one step have different variables"


def _stdin(command: Command) -> JsonValue:
    return command.stdin


def _environment(command: Command) -> JsonValue:
    return dict(command.environment)


def _of_attachment(command: Command) -> Mapping[str, str]:
    return {name: value for name, value in command.environment.items() if name != "CNI_COMMAND"}


def _fill(text: str, directory: Path) -> str:
    return text.replace("<path>", str(directory / "bin")).replace("<netns>", str(_netns(directory)))


def _filled(part: JsonValue, directory: Path) -> JsonValue:
    if isinstance(part, str):
        return _fill(part, directory)
    return {key: _filled(item, directory) for key, item in part.items()} if isinstance(part, dict) else part


def _differences(where: str, wanted: JsonValue, found: JsonValue) -> Iterator[str]:
    """Compare a document with a part of it; null stands for an absent key."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, item in wanted.items():
            if item is not None or found.get(key) is not None:
                yield from _differences(f"{where}.{key}", item, found.get(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from _differences(f"{where}[{number}]", one, other)
    elif wanted != found:
        yield f"{where} is {json.dumps(found)}, not {json.dumps(wanted)}"
