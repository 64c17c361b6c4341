# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Templates of `--format`: a small part of docker's."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import BadOption
from cnm_bridge.operator.cli.output.template import Template

ROW: JsonObject = {
    "id": "77ad",
    "ports": [8080],
    "network": {"name": "blue"},
    "internal": True,
    "mac": None,
    "count": 3,
}


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{.Id}}", "77ad"),
        ("{{ .id }}!", "77ad!"),
        (r"{{.Id}}\t{{.Count}}", "77ad\t3"),
        ("{{.Network.Name}}", "blue"),
        ("{{.Internal}}{{.Mac}}", "true"),
        ("{{.Ports}}", "[8080]"),
        ("{{json .Network}}", '{"name":"blue"}'),
        ("{{json .Id}}", '"77ad"'),
    ],
)
def test_values(template: str, line: str) -> None:
    """A name stands for a value; anything but a text or a number is shown as JSON."""
    assert Template(template).render(ROW) == line


def test_the_whole_row_as_json() -> None:
    """As docker's `{{json .}}`."""
    assert Template("{{json .}}").render({"a": 1}) == '{"a":1}'


@pytest.mark.parametrize("template", ["yaml", "", "{{.Id", "{{range .}}x{{end}}", "{{Id}}", "{{.Id}} }}"])
def test_a_malformed_template_is_refused(template: str) -> None:
    """Before anything is shown."""
    with pytest.raises(BadOption, match="--format"):
        Template(template)


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{{.Idd}}", r"did you mean Id\? There are Count, Id"),
        ("{{.Xyzzy}}", "there are Count, Id"),
        ("{{.Id.Name}}", "there is no Name in"),
        ("{{.Network.Nmae}}", "did you mean Name"),
    ],
)
def test_an_unknown_name_is_refused(template: str, hint: str) -> None:
    """The error has the nearest name, and all."""
    with pytest.raises(BadOption, match=hint):
        Template(template).refuse_unknown([ROW])


@pytest.mark.parametrize(
    ("template", "line"), [("{{.Verb}}!", "!"), ("{{.Mac.Vendor}}!", "!"), ("{{json .Verb}}", "null")]
)
def test_what_a_row_lacks_is_empty(template: str, line: str) -> None:
    """A name is known if any row has it."""
    made = Template(template)
    made.refuse_unknown([ROW, {"verb": "ADD", "mac": {"vendor": "v"}}])
    assert made.render(ROW) == line


@pytest.mark.parametrize(
    ("template", "missing"), [("{{.Id", "}} is missing"), ("{{.Id}} {{", "}} is missing"), ("}}", "{{ is")]
)
def test_an_unfinished_template_names_what_is_missing(template: str, missing: str) -> None:
    """And not the formats that there are."""
    with pytest.raises(BadOption, match=missing):
        Template(template)
