# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins receive the identity of a container."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject, find_object, get_object, get_objects
from cni_bridge_state import AttachmentRecord, AttachMode, IdentityRequest, ReservationInput
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.planning.identity import with_identity
from tests.records import endpoint

ID = "ab" * 32
DOCKER = IdentityRequest()
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web", "tier": "front"}


def container(labels: dict[str, str] | None = None, name: str = "shop-web-1") -> EngineContainer:
    """Return a container that is being started."""
    return EngineContainer(id=ID, name=name, image="busybox:1", labels=labels or {})


def attachment(
    *plugins: JsonObject, args: tuple[tuple[str, str], ...] = (), capability_args: JsonObject | None = None
) -> AttachmentRecord:
    """Return an attachment to a list of these plugins."""
    chosen = plugins or [{"type": "bridge"}]
    return endpoint(ID, network="blue", plugins=chosen, args=args, capability_args=capability_args).attachment


def labels(changed: AttachmentRecord) -> list[JsonObject]:
    """Return the labels that the first plugin receives."""
    first = NetworkConfigurationList.from_document(changed.configuration).plugins[0].document
    return list(get_objects(find_object(find_object(first, "args") or {}, "cni") or {}, "labels"))


def test_the_arguments() -> None:
    """Name, image, project and service; an argument without a value is left out, and so are labels."""
    changed = with_identity(attachment(), DOCKER, container(COMPOSE)).attachment
    assert dict(changed.args) == {
        "IgnoreUnknown": "1",
        "DOCKER_CONTAINER_ID": ID,
        "DOCKER_CONTAINER_NAME": "shop-web-1",
        "DOCKER_IMAGE": "busybox:1",
        "DOCKER_COMPOSE_PROJECT": "shop",
        "DOCKER_COMPOSE_SERVICE": "web",
    }
    assert changed.configuration == attachment().configuration
    assert "DOCKER_COMPOSE_PROJECT" not in dict(with_identity(attachment(), DOCKER, container()).attachment.args)


def test_labels_are_selected_by_patterns() -> None:
    """A label that the configuration has already stays as it is there."""
    request = IdentityRequest(labels=("com.docker.*", "tier"))
    changed = with_identity(attachment(), request, container({**COMPOSE, "secret": "x"})).attachment
    assert [label["key"] for label in labels(changed)] == sorted(COMPOSE)
    own: JsonObject = {"type": "bridge", "args": {"cni": {"labels": [{"key": "tier", "value": "own"}]}}}
    changed = with_identity(attachment(own), request, container({"tier": "front"})).attachment
    assert labels(changed) == [{"key": "tier", "value": "own"}]


def test_options_go_before_the_identity() -> None:
    """An argument or capability that the user gives is not replaced."""
    dnsname: JsonObject = {"type": "dnsname", "capabilities": {"aliases": True}}
    own = attachment(
        dnsname,
        args=(("IgnoreUnknown", "1"), ("DOCKER_IMAGE", "mine")),
        capability_args={"aliases": {"blue": ["mine"]}},
    )
    changed = with_identity(own, DOCKER, container()).attachment
    assert dict(changed.args)["DOCKER_IMAGE"] == "mine"
    assert changed.capability_args == own.capability_args


def test_names_for_a_plugin_that_serves_them() -> None:
    """Such as `dnsname`: it reads `K8S_POD_NAME`, and the aliases on the network."""
    dnsname: JsonObject = {"type": "dnsname", "capabilities": {"aliases": True}}
    changed = with_identity(attachment({"type": "bridge"}, dnsname), DOCKER, container(COMPOSE)).attachment
    assert dict(changed.args)["K8S_POD_NAME"] == "shop-web-1"
    assert changed.capability_args == {"aliases": {"blue": ["shop-web-1", "web"]}}


@pytest.mark.parametrize("value", ["a;b", "a=b", "a\0b", "x" * 200_000, "\ud800"])
def test_a_value_that_cni_args_cannot_hold(value: str) -> None:
    """It is left out, and the others are passed."""
    found = with_identity(attachment(), DOCKER, container({"com.docker.compose.project": value}))
    args = dict(found.attachment.args)
    assert "DOCKER_COMPOSE_PROJECT" not in args
    assert args["DOCKER_CONTAINER_NAME"] == "shop-web-1"
    assert found.left_out == ("DOCKER_COMPOSE_PROJECT",)


@pytest.mark.parametrize("value", ["a\0b", "x" * 200_000, "\ud800"])
def test_a_label_that_no_plugin_receives(value: str) -> None:
    """It is left out, and named in short."""
    request = IdentityRequest(labels=("*",))
    given = {"equal": "a=b;c", "wrong": value, "k" * 200_000: "long"}
    found = with_identity(attachment(), request, container(given))
    assert labels(found.attachment) == [{"key": "equal", "value": "a=b;c"}]
    assert found.left_out == (f"label {'k' * 64}", "label wrong")


def test_arguments_that_are_too_long_together() -> None:
    """Those of the user stay, and those of the identity that have no place are left out."""
    own = attachment(args=(("LONG", "x" * 131_000),))
    found = with_identity(own, DOCKER, container())
    assert dict(found.attachment.args).keys() == {"IgnoreUnknown", "LONG", "DOCKER_CONTAINER_NAME"}
    assert found.left_out == ("DOCKER_CONTAINER_ID", "DOCKER_IMAGE")


def test_an_alias_that_is_no_name() -> None:
    """A plugin may write it into a file of host names, so one with white space is left out."""
    dnsname: JsonObject = {"type": "dnsname", "capabilities": {"aliases": True}}
    found = with_identity(attachment(dnsname), DOCKER, container({**COMPOSE, "com.docker.compose.service": "a\nb c"}))
    assert found.attachment.capability_args == {"aliases": {"blue": ["shop-web-1"]}}
    assert "alias a\nb c" in found.left_out


def test_the_host_name_of_a_lease() -> None:
    """The DHCP server receives the name, in characters of host names, unless the list sends one."""
    main: JsonObject = {"type": "macvlan", "ipam": {"type": "dhcp"}}
    changed = with_identity(attachment(main), DOCKER, container(name="my_box.1")).attachment
    (plugin,) = get_objects(changed.configuration, "plugins")
    assert get_object(plugin, "ipam")["provide"] == [{"option": "host-name", "value": "my-box-1"}]
    own: JsonObject = {"type": "macvlan", "ipam": {"type": "dhcp", "provide": [{"option": "12", "value": "x"}]}}
    assert with_identity(attachment(own), DOCKER, container()).attachment.configuration == attachment(own).configuration


def test_the_ipam_plugin_of_a_reservation() -> None:
    """What it received before the container was known stays for its DEL, also if the container is identified again."""
    main: JsonObject = {"type": "bridge", "ipam": {"type": "host-local"}, "capabilities": {"mac": True}}
    own = replace(attachment(main, args=(("IP", "10.1.0.9"),)), mode=AttachMode.HYBRID)
    request = IdentityRequest(labels=("tier",))
    changed = with_identity(own, request, container(COMPOSE)).attachment
    received = ReservationInput(
        plugin={"type": "host-local", "ipam": {"type": "host-local"}}, args=(("IP", "10.1.0.9"),)
    )
    assert changed.reservation_input == received
    assert labels(changed)
    assert with_identity(changed, request, container(COMPOSE)).attachment.reservation_input == received
    assert (
        with_identity(replace(own, mode=AttachMode.DIRECT), request, container()).attachment.reservation_input is None
    )


CALICO: JsonObject = {
    "org.apache.mesos": {"network_info": {"name": "{name} of {image}", "labels": {"labels": "{labels}"}}}
}


def test_a_template_of_arguments() -> None:
    """Each plugin receives it in `args`, beside what its configuration has there, which is not replaced."""
    own: JsonObject = {"type": "calico", "args": {"org.apache.mesos": {"network_info": {"ip": "x"}}, "other": 1}}
    request = IdentityRequest(labels=("tier",))
    changed = with_identity(attachment(own, {"type": "portmap"}), request, container(COMPOSE), CALICO).attachment
    first, second = (
        get_object(get_object(plugin, "args"), "org.apache.mesos")["network_info"]
        for plugin in get_objects(changed.configuration, "plugins")
    )
    told = {"name": "shop-web-1 of busybox:1", "labels": {"labels": [{"key": "tier", "value": "front"}]}}
    assert second == told
    assert first == {**told, "ip": "x"}
    assert get_object(get_objects(changed.configuration, "plugins")[0], "args")["other"] == 1


def test_a_value_of_the_list_is_not_replaced_by_the_template() -> None:
    """The operator has written it."""
    own: JsonObject = {"type": "calico", "args": {"org.apache.mesos": {"network_info": {"name": "mine"}}}}
    changed = with_identity(attachment(own), DOCKER, container(COMPOSE), CALICO).attachment
    (plugin,) = get_objects(changed.configuration, "plugins")
    info = get_object(get_object(get_object(plugin, "args"), "org.apache.mesos"), "network_info")
    assert info == {"name": "mine", "labels": {"labels": []}}


def test_labels_are_limited_together() -> None:
    """Each plugin receives them, and the record has them; what is left out is counted."""
    request = replace(DOCKER, labels=("*",))
    many = {f"label{number:04}": "x" * 4000 for number in range(3000)}
    found = with_identity(attachment(), request, container(many))
    passed = labels(found.attachment)
    assert [label["key"] for label in passed] == sorted(many)[: len(passed)]
    assert len(passed) == (64 << 10) // 4009
    assert found.left_out == (f"{3000 - len(passed)} labels after the first 65536 bytes",)
