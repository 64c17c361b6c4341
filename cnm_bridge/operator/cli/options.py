# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's settings as options of commands, with values from several sources.

The first source that has a value wins: the command line, the environment (`CNI_BRIDGE_<OPTION>`), the configuration
file, the default. The error for an invalid value names its source. The file is TOML, with one key per option, spelled
like the option.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from cni_bridge_spec import JsonValue
from cni_invoker.documents.jsontypes import show
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.settings import Settings, option_name
from cnm_bridge.operator.cli.echo import echo

R = TypeVar("R")
_DEFAULTS: Final = Settings()
_HELP: Final = {one.name: str(get_args(one.type)[1]) for one in fields(Settings) if get_origin(one.type) is Annotated}
_CONFIG: Final = "config"


class _NotEmpty(click.Path):
    """A path that is not empty, which would mean the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse the empty path."""
        if value == "":
            self.fail("is empty", param, ctx)
        return super().convert(value, param, ctx)


DIRECTORY: Final = _NotEmpty(file_okay=False, readable=False, path_type=Path)
"""A directory, which may not exist, or be readable by root only; that is an error when it is read."""
FILE: Final = _NotEmpty(dir_okay=False, readable=False, path_type=Path)
"""A file, likewise."""


def seconds(value: str | float) -> float:
    """Return a duration in seconds; refuse one that is not finite and positive."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{value} is not a positive number of seconds")
    return number


def url(value: str) -> str:
    """Return the address of an engine; refuse one that is neither a Unix socket nor TCP, or has a port that is none."""
    try:
        urlsplit(value).port  # noqa: B018 - it is checked when it is read
    except ValueError as exc:
        raise click.BadParameter(f"{value!r}: {exc}; set --docker-host") from exc
    if not value.startswith(("unix:///", "tcp://", "http://", "https://")):
        raise click.BadParameter(f"{value!r} is neither unix:///path nor tcp://host:port; set --docker-host")
    return value


def address(value: str) -> str:
    """Return where metrics are served; refuse what is not an IP address with a port, but for the empty text."""
    if value:
        from cnm_bridge.system.sockets import parse_address  # noqa: PLC0415 - most daemons serve none

        try:
            parse_address(value)
        except Refused as exc:
            raise click.BadParameter(str(exc)) from exc
    return value


def parse_pairs(options: Sequence[str]) -> dict[str, str]:
    """Return options KEY=VALUE by key."""
    pairs = [option.partition("=") for option in options]
    for key, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}


_TYPES: Final[Mapping[str, Any]] = {"docker_host": url, "metrics_listen": address, "cni_arg_names": click.STRING}
"""The types that do not follow from a default."""


class Setting(click.Option):
    """The option of a setting; errors of its values name their source."""

    def __init__(self, declarations: Sequence[str], **attributes: Any) -> None:  # noqa: ANN401 - click's own
        (field,) = declarations
        self.key: Final = option_name(field)
        self._value = getattr(_DEFAULTS, field)
        variable = f"CNI_BRIDGE_{self.key.replace('-', '_').upper()}"
        super().__init__(
            [f"--{self.key}", field],
            type=_TYPES.get(field) or _infer_type(self.key, self._value),
            multiple=isinstance(self._value, tuple),
            default=self._value.value if isinstance(self._value, Enum) else self._value,
            envvar=[variable, "DOCKER_HOST"] if field == "docker_host" else variable,
            show_default=True,
            show_envvar=True,
            help=_HELP[field],
            **attributes,
        )

    def cast(self, value: object) -> Any:  # noqa: ANN401 - it has the type of the field
        """Return the value for one in a document: a configuration file, or the answer of a daemon.

        Raises:
            BadOption: It is invalid.
        """
        if wanted := self._describe_mismatch(value):
            raise BadOption(self.key, f"must be {wanted}, not {show(value)}")
        try:
            return self.type_cast_value(click.get_current_context(), value)
        except click.BadParameter as exc:
            raise BadOption(self.key, exc.message) from exc

    def _describe_mismatch(self, value: object) -> str:
        """Return what a value in a document should be, e.g. `a text`; "" if it has that type."""
        match self._value:
            case tuple():
                is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
                return "" if is_list and (value or not self._value) else "a list of texts"
            case float():
                return "" if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
            case _:
                return "" if isinstance(value, str) or value is self._value else "a text"

    def process_value(self, ctx: click.Context, value: object) -> object:
        """Convert and check a value."""
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as exc:
            text = f"{exc.message.rstrip('.')} ({self._origin(ctx)})"
            raise click.BadParameter(text, exc.ctx or ctx, exc.param or self) from exc

    def _origin(self, ctx: click.Context) -> str:
        """Return where a value is from; those of the file were checked when it was read."""
        source = ctx.get_parameter_source(self.name or "")
        if source is ParameterSource.ENVIRONMENT:
            names = [self.envvar] if isinstance(self.envvar, str) else self.envvar or ()
            return f"from the environment variable {next((name for name in names if os.environ.get(name)), '?')}"
        return "from the command line" if source is ParameterSource.COMMANDLINE else "the default"


def _infer_type(key: str, default: object) -> Any:  # noqa: ANN401 - a type of click, or a function
    match default:
        case Enum():
            return click.Choice(type(default), case_sensitive=False)
        case float():
            return seconds
        case str():
            return click.STRING
        case _:
            return DIRECTORY if key.endswith("-dir") else FILE


OPTIONS: Final = {field: Setting([field]) for field in _HELP}
"""The options of all settings, by field."""
SETTINGS: Final = tuple(field for field in OPTIONS if field != _CONFIG)
"""The settings that a configuration file can have."""


def with_settings(
    *settings: str, hidden: bool = False, tolerant: bool = False
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that adds options to a command: some settings, and `--config`.

    The command's function gets `Settings` as `settings`.

    Args:
        settings: Fields of `Settings`; the others keep their default.
        hidden: Whether the help leaves the settings out, few of which are ever given.
        tolerant: Whether what is wrong in the file is a warning, and left out: for commands that ask the daemon, which
            runs with what was there before.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def run(**values: Any) -> R:  # noqa: ANN401 - of many types
            given = {field: values.pop(field) for field in (_CONFIG, *settings)}
            return command(settings=settings_from(given), **values)

        decorated: Callable[..., R] = run
        for field in reversed(settings):
            decorated = click.option(field, cls=Setting, hidden=hidden)(decorated)
        load = partial(_load_config, tolerant=tolerant)
        return click.option(_CONFIG, cls=Setting, is_eager=True, callback=load)(decorated)

    return decorate


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the settings for the options' values; relative paths start at the working directory."""
    given = Settings(**values)
    return replace(
        given,
        config=given.config.absolute(),
        socket=given.socket.absolute(),
        admin_socket=given.admin_path.absolute(),
        state_dir=given.state_dir.absolute(),
        run_dir=given.run_dir.absolute(),
    )


def read_config_file(path: Path) -> tuple[Mapping[str, JsonValue], Sequence[str]]:
    """Return the valid values in a configuration file by field, and what is wrong in it, each with the file's name.

    Raises:
        OSError: The file cannot be read.
    """
    import tomllib  # noqa: PLC0415 - most hosts have no such file

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except ValueError as exc:
        return {}, [f"{path}: {exc}"]
    except RecursionError:
        return {}, [f"{path}: its arrays or tables are nested too deeply"]
    known = {OPTIONS[field].key: field for field in SETTINGS}
    values: dict[str, JsonValue] = {}
    mistakes = []
    for key, value in document.items():
        try:
            if key not in known:
                raise BadOption.unknown(key, known)
            OPTIONS[known[key]].cast(value)
            values[known[key]] = value
        except BadOption as exc:
            mistakes.append(f"{path}: {exc}")
    return values, mistakes


def _load_config(context: click.Context, _: click.Parameter, path: Path, *, tolerant: bool) -> Path:
    try:
        values, mistakes = read_config_file(path)
    except OSError as exc:
        is_default = context.get_parameter_source(_CONFIG) is ParameterSource.DEFAULT
        if is_default and isinstance(exc, FileNotFoundError):
            return path
        raise click.BadParameter(f"{path}: {exc.strerror}") from exc
    for mistake in mistakes:
        if not tolerant:
            raise click.UsageError(mistake, context)
        echo(f"cni-bridge: warning: {mistake}; it is left out", err=True)
    context.default_map = dict(values)
    return path
