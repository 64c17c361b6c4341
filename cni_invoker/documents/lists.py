# SPDX-License-Identifier: Apache-2.0
"""Parses JSON documents into network configuration lists.

The original document is authoritative: it is kept whole, including unknown keys; plugins receive it, and it is stored
for DEL. The typed view has what the runtime itself needs.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from cni_invoker.documents.checks import StrPath, check_network_name, check_plugin_type
from cni_invoker.documents.jsontypes import (
    ANY,
    JsonError,
    JsonObject,
    JsonSyntaxError,
    JsonValue,
    Required,
    Shape,
    as_object,
    check_json,
    check_shape,
    find_object,
    find_str,
    get_bool,
    get_objects,
    get_str,
    get_strings,
    parse_json,
    show,
)
from cni_invoker.documents.versions import offered_versions
from cni_invoker.errors import PARSING_LIST, PARSING_PLUGIN, BadConfiguration, InvalidParameter, VersionUnsupported

LIST_SUFFIX: Final = ".conflist"
PLUGIN_SUFFIXES: Final = (".conf", ".json")
"""Of a file with a single plugin, the format from before CNI 0.3.0."""
FURTHER_SUFFIX: Final = ".conf"
"""Of a further plugin of a list, in a sub-directory named after the network."""

_ONLY_INLINED: Final = "loadOnlyInlinedPlugins"
_TEXT: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"?')
_SIGNS: Final = tuple(
    (re.compile(sign, re.MULTILINE), hint)
    for sign, hint in (
        (rb"\A\s*\Z", "the file is empty"),
        (rb"\A\xef\xbb\xbf", "it begins with a byte order mark; save it as UTF-8 without one"),
        (rb"\A(?:\xff\xfe|\xfe\xff)", "it is UTF-16; save it as UTF-8"),
        (rb"\A\s*(?:['`]|\xe2\x80[\x98\x9c])", "the whole file is in quotes; remove them"),  # also typographic ones
        (
            rb"\A\s*(?![\s{\[])(?:.|\n)*?^[ \t]*(?:---|(?:- )?[A-Za-z][\w.-]*:(?:\s|$))",
            "it looks like YAML; write it as JSON",
        ),
        (rb"^[ \t]*#|//|/\*", "JSON has no comments; remove them"),
        (rb",\s*[]}]", "remove the comma after the last item"),
    )
)
"""Patterns that explain text that is not JSON, searched outside of quotes; the first match wins."""

_PLUGIN: Final[Shape] = {
    "type": Required(str),
    "name": str,
    "cniVersion": str,
    "capabilities": {ANY: bool},
    "ipam": {"type": str},
}
"""CNI SPEC §1 "Plugin configuration objects"; alone in a file, the format before CNI 0.3.0."""
_LIST: Final[Shape] = {"name": Required(str), "cniVersion": str, "cniVersions": [str], "plugins": [_PLUGIN]}
"""CNI SPEC §1 "Configuration format"."""
_NEVER_NULL: Final = ("cniVersion", "cniVersions", "disableCheck", "disableGC", _ONLY_INLINED, "name", "plugins")

_RESERVED: Final = frozenset({"prevResult", "runtimeConfig"})
_RESERVED_PREFIX: Final = "cni.dev/"


def is_reserved(key: str) -> bool:
    """Return whether only a runtime may set a key of a plugin's configuration.

    The first plugin of a list would take a `prevResult` from the file for the result of an earlier plugin.
    """
    return key in _RESERVED or key.startswith(_RESERVED_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfiguration:
    """One plugin of a list, with the capabilities that it declares, and its whole configuration, unchanged."""

    type: str
    ipam_type: str | None
    capabilities: frozenset[str]
    document: JsonObject = field(hash=False)

    @property
    def reserved_keys(self) -> tuple[str, ...]:
        """The keys of its document that only a runtime may set; they are not passed on to the plugin."""
        return tuple(filter(is_reserved, self.document))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfigurationList:
    """A CNI network: plugins that run one after the other (CNI SPEC §1).

    Use `from_document`, or read it from a file.

    Attributes:
        cni_version: The version of the requests to its plugins.
        cni_versions: The versions that it offers, newest first; negotiation chooses `cni_version` from them.
        plugins: At least one.
        document: The whole list, including plugins from other files; `from_document` parses it into an equal list.
            Numbers, the order of keys, and unknown keys are unchanged.
        source: The file that it was read from, None if it does not come from a file.
    """

    name: str
    cni_version: str
    cni_versions: tuple[str, ...]
    plugins: tuple[PluginConfiguration, ...]
    disable_check: bool
    disable_gc: bool
    document: JsonObject = field(hash=False)
    source: Path | None = None

    @classmethod
    def from_document(
        cls,
        document: JsonValue,
        *,
        source: Path | None = None,
        find_further: Callable[[str], Sequence[JsonObject]] = lambda _: (),
    ) -> Self:
        """Parse a list that was read from a file or that was stored.

        Args:
            document: The list.
            source: The file that it was read from, which errors name.
            find_further: Called with the name of a list that does not set `loadOnlyInlinedPlugins`; returns the plugins
                from other files, which follow its own.

        Raises:
            BadConfiguration: The document is not a network configuration list.
        """
        try:
            check_json(document)
            found = _as_checked(document, _LIST)
            name = get_str(found, "name")
            check_network_name(name)
            inlined, only_inlined = get_objects(found, "plugins"), _flag(found, _ONLY_INLINED)
            if "plugins" in found and not inlined:
                raise JsonError("no plugins in list")
            if "plugins" not in found and only_inlined:
                raise JsonError(f"`{_ONLY_INLINED}` is true, and no 'plugins' key")
            further = () if only_inlined else find_further(name)
            plugins = (*inlined, *further)
            if not plugins:
                raise JsonError("no plugin configs found")
            if further:
                found = {**found, _ONLY_INLINED: True, "plugins": list(plugins)}
            offered = offered_versions(
                find_str(found, "cniVersion") or "",
                get_strings(found, "cniVersions") if "cniVersions" in found else None,
            )
            return cls(
                name=name,
                cni_version=offered[0],
                cni_versions=offered,
                plugins=tuple(map(_parse_plugin, plugins)),
                disable_check=_flag(found, "disableCheck"),
                disable_gc=_flag(found, "disableGC"),
                document=found,
                source=source,
            )
        except (JsonError, InvalidParameter, VersionUnsupported) as exc:
            is_plugin = isinstance(document, dict) and "type" in document and not _has_plugins(document)
            hint = " (a single plugin, with 'type', belongs into a .conf file, or into 'plugins')" if is_plugin else ""
            raise BadConfiguration(f"{exc}{hint}", file=source) from exc

    @classmethod
    def from_plugin_document(cls, document: JsonValue, *, source: Path | None = None) -> Self:
        """Parse the configuration of a single plugin into a list of one plugin, or raise `BadConfiguration`."""
        try:
            check_json(document)
            found = _as_checked(document, _PLUGIN)
        except JsonError as exc:
            hint = " (a list, with 'plugins', belongs into a .conflist file)" if _has_plugins(document) else ""
            raise BadConfiguration(f"{exc}{hint}", file=source, phrase=PARSING_PLUGIN) from exc
        named = {key: found[key] for key in ("cniVersion", "name") if key in found}
        return cls.from_document({**named, "plugins": [found]}, source=source)

    @property
    def plugin_types(self) -> tuple[str, ...]:
        """The names of all executables that it needs; each plugin precedes its IPAM plugin."""
        return tuple(name for plugin in self.plugins for name in (plugin.type, plugin.ipam_type) if name)

    def with_version(self, version: str) -> Self:
        """Return the list with `version` as its only version, also in its document."""
        if (version,) == self.cni_versions:
            return self
        others = {key: value for key, value in self.document.items() if key != "cniVersions"}
        return replace(self, cni_version=version, cni_versions=(version,), document={**others, "cniVersion": version})

    def with_plugins(self, chosen: Sequence[PluginConfiguration]) -> Self:
        """Return the list with only the given plugins, which must be its own."""
        documents = [plugin.document for plugin in chosen]
        return replace(self, plugins=tuple(chosen), document={**self.document, "plugins": documents})


def parse_configuration(
    data: bytes, file: StrPath, find_further: Callable[[str], Sequence[JsonObject]] = lambda _: ()
) -> NetworkConfigurationList:
    """Parse a file's content; the file's suffix decides whether it is a list or a single plugin.

    `find_further` is that of `from_document`.

    Raises:
        BadConfiguration: It is not JSON (with line and column), or not a network configuration.
    """
    path = Path(file)
    is_list = path.name.endswith(LIST_SUFFIX)
    document = _parse_document(data, path, PARSING_LIST if is_list else PARSING_PLUGIN)
    if is_list:
        return NetworkConfigurationList.from_document(document, source=path, find_further=find_further)
    return NetworkConfigurationList.from_plugin_document(document, source=path)


def _parse_document(data: bytes, file: Path, phrase: str) -> JsonValue:
    try:
        return parse_json(data)
    except JsonSyntaxError as exc:
        bare = _TEXT.sub(b'""', data)
        hint = next((hint for sign, hint in _SIGNS if sign.search(bare)), None)
        reason = f"{exc.reason}; {hint}" if hint else exc.reason
        raise BadConfiguration(reason, file=file, line=exc.line, column=exc.column, phrase=phrase) from exc


def parse_further_plugin(data: bytes, file: Path) -> JsonObject:
    """Parse a file that adds a plugin to a list; errors as of `parse_configuration`."""
    try:
        document = _as_checked(_parse_document(data, file, PARSING_PLUGIN), _PLUGIN)
        _parse_plugin(document)
    except (JsonError, InvalidParameter) as exc:
        raise BadConfiguration(str(exc), file=file, phrase=PARSING_PLUGIN) from exc
    return document


def _parse_plugin(document: JsonObject) -> PluginConfiguration:
    plugin_type = get_str(document, "type")
    check_plugin_type(plugin_type)
    ipam_type = find_str(find_object(document, "ipam") or {}, "type")
    if ipam_type:
        check_plugin_type(ipam_type)
    declared = find_object(document, "capabilities") or {}
    return PluginConfiguration(
        type=plugin_type,
        ipam_type=ipam_type or None,
        capabilities=frozenset(capability for capability, wanted in declared.items() if wanted),
        document=document,
    )


def _flag(document: JsonObject, key: str) -> bool:
    """Return a boolean; like libcni, accept it as a string in upper or lower case."""
    value = document.get(key, False)
    if isinstance(value, str):
        if value.lower() not in {"true", "false"}:
            raise JsonError(f'invalid value for {key}: {show(value)} that is neither "true" nor "false"')
        return value.lower() == "true"
    return get_bool(document, key)


def _as_checked(document: JsonValue, shape: Shape) -> JsonObject:
    if isinstance(document, str):  # as a file in quotes is
        raise JsonError("the whole document is one text in quotes; remove the quotes around it")
    found = as_object(document, "the document")
    if null := next((key for key in _NEVER_NULL if key in found and found[key] is None), None):
        raise JsonError(f"{null} must not be null")
    check_shape(found, shape)
    return found


def _has_plugins(document: JsonValue) -> bool:
    return isinstance(document, dict) and "plugins" in document
