# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From a JSON document to a network configuration list; pure.

The document is the truth: it is kept whole, unknown keys and all, and is what plugins are given and what is stored for
DEL. The typed view beside it has what the runtime itself must know.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from cni_invoker.errors import BadConfiguration, InvalidParameter, VersionUnsupported
from cni_invoker.names import check_network_name, check_plugin_type
from cni_invoker.versions import select_version
from spec import (
    JsonError,
    JsonObject,
    JsonSyntaxError,
    JsonValue,
    find_object,
    find_str,
    get_objects,
    get_str,
    get_strings,
    load_validator,
    parse_json,
)

__all__ = ["LIST_SUFFIX", "PLUGIN_SUFFIXES", "NetworkConfigurationList", "PluginConfiguration", "parse_configuration"]

LIST_SUFFIX: Final = ".conflist"
"""A file of this suffix is a network configuration list."""

PLUGIN_SUFFIXES: Final = (".conf", ".json")
"""A file of these suffixes is the configuration of a single plugin, as it was before CNI 0.3.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfiguration:
    """One plugin of a list.

    Attributes:
        type: Name of the plugin's executable.
        ipam_type: Name of the IPAM plugin's, to which it delegates; None if it has none.
        capabilities: What it declares to understand in `runtimeConfig`.
        document: The whole configuration, as it was read.
    """

    type: str
    ipam_type: str | None
    capabilities: frozenset[str]
    document: JsonObject = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfigurationList:
    """A network as CNI knows it: plugins, run one after the other (CNI SPEC §1).

    Attributes:
        name: Name of the network.
        cni_version: The version that its plugins are spoken to in.
        plugins: At least one.
        disable_check: CHECK must not be run.
        document: The whole list, as it was read; `from_document` makes the same list of it again.
        source: The file it was read from, None if it comes from elsewhere.
    """

    name: str
    cni_version: str
    plugins: tuple[PluginConfiguration, ...]
    disable_check: bool
    document: JsonObject = field(hash=False)
    source: Path | None = None

    @classmethod
    def from_document(cls, document: JsonValue, *, source: Path | None = None) -> Self:
        """Return the list that `document` describes, fresh from a file or from where it was stored.

        Raises:
            BadConfiguration: The document is no network configuration list.
        """
        try:
            found = load_validator("cni/list")(document)
            name = get_str(found, "name")
            check_network_name(name)
            plugins = get_objects(found, "plugins")
            if not plugins:
                raise BadConfiguration("no plugins in list", file=source)
            return cls(
                name=name,
                cni_version=select_version(
                    find_str(found, "cniVersion") or "",
                    get_strings(found, "cniVersions") if "cniVersions" in found else None,
                ),
                plugins=tuple(_parse_plugin(plugin) for plugin in plugins),
                disable_check=_flag(found, "disableCheck"),
                document=found,
                source=source,
            )
        except (JsonError, InvalidParameter, VersionUnsupported) as exc:
            raise BadConfiguration(str(exc), file=source) from exc

    @classmethod
    def from_plugin_document(cls, document: JsonValue, *, source: Path | None = None) -> Self:
        """Return the list of one plugin that the configuration of a single plugin stands for.

        Raises:
            BadConfiguration: The document is no plugin configuration.
        """
        try:
            found = load_validator("cni/plugin")(document)
        except JsonError as exc:
            hint = " (a list, with 'plugins', belongs into a .conflist file)" if _has_plugins(document) else ""
            raise BadConfiguration(f"{exc}{hint}", file=source) from exc
        named = {key: found[key] for key in ("cniVersion", "name") if key in found}
        return cls.from_document({**named, "plugins": [found]}, source=source)


def parse_configuration(data: bytes, file: Path) -> NetworkConfigurationList:
    """Return the list that a file's content describes; the file's suffix tells whether it is one plugin's or a list.

    Raises:
        BadConfiguration: It is not JSON, with line and column, or no network configuration.
    """
    try:
        document = parse_json(data)
    except JsonSyntaxError as exc:
        raise BadConfiguration(exc.reason, file=file, line=exc.line, column=exc.column) from exc
    if file.name.endswith(LIST_SUFFIX):
        return NetworkConfigurationList.from_document(document, source=file)
    return NetworkConfigurationList.from_plugin_document(document, source=file)


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
    """Return a boolean that may also be written as a string, in any case, as libcni allows."""
    value = document.get(key, False)
    if isinstance(value, str):
        if value.lower() not in {"true", "false"}:
            raise JsonError(f'invalid value "{value}" for {key}')
        return value.lower() == "true"
    return value is True


def _has_plugins(document: JsonValue) -> bool:
    return isinstance(document, dict) and "plugins" in document
