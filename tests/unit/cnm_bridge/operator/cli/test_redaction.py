# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No secret with a name that says so survives, in any form; and the time is proportional to the length."""

import json
from collections.abc import Callable, Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import JsonValue, parse_json
from cnm_bridge.operator.cli.redaction import REDACTED, redact, redact_file, redact_output, redact_text

SECRET: Final = "hunter2-5up3r"
NAMES: Final = (
    *("password", "dbPassword", "DB_PASS_1", "api-key", "apiToken", "client-secret", "psk", "auth", "credentials"),
    *("key", "client-key-data", "clientKeyData", "etcd_key", "tls.key", "PrivateKey", "access_key_id", "MYSECRET"),
)
HARMLESS: Final = ("keys", "author", "sandboxKey", "public_key", "name", "keyboard", "type")
LINES: Final = st.sampled_from(
    ["", "plain: text", "  indented: 1", "a = [", "- item", "]", '"', "it's", "{", "}", "'''"]
)


def assigned(name: str, secret: str) -> dict[str, str]:
    """Return texts of each form in which a name is followed by its value."""
    return {
        "env": f"{name}={secret} OTHER=1",
        "toml": f'{name} = "{secret}"',
        "toml array": f'{name} = ["a", "{secret}"]',
        "yaml": f"  {name}: {secret}",
        "yaml block": f"  {name}: |-\n    first\n\n    {secret}\n",
        "yaml folded": f"{name}: >\n first\n {secret}",
        "yaml item": f"- {name}: |\n    {secret}",
        "yaml in quotes": f"{name}: 'first\n\n  {secret}'",
        "yaml flow": f"{{a: b, {name}: {secret}}}",
        "broken JSON": f'{{"a": {{"{name}": "{secret}"}},',
        "JSON in a log": f'2026-01-01 host cni[1]: {{"x": {{"{name}": ["{secret}"]}}}}',
        "JSON in JSON": json.dumps({"stdin": json.dumps({name: secret})}),
        "broken JSON in JSON": f'{{"stdin": "{{\\"{name}\\": \\"{secret}\\"}}"',
        "flag": f"exec plugin --{name} {secret} --other",
        "flag with =": f"exec plugin --{name}={secret}",
        "index": f"{name}[0] = {secret}",
        "pair": f"- name: {name}\n  value: {secret}\n- name: other\n  value: 1",
        "pair in quotes": f"- name: '{name}'\n  # from the vault\n\n  value: |\n    first\n    {secret}",
        "pair, value first": f"env:\n- value: >\n    first\n    {secret}\n  name: {name}",
        "pair of three": f"- name: {name}\n  from:\n    name: x\n    value: y\n  value: {secret}",
        "pair called key": f"key: {name}\nvalue: {secret}",
        "pair in a log": f"Jan 1 cni[1]: - name: {name}\nJan 1 cni[1]:   value: {secret}",
        "pair in TOML": f'[[env]]\nname = "{name}"\nvalue = "{secret}"',
        "pair in flow": f"- {{name: {name}, value: {secret}}}",
        "pair in JSON": json.dumps({"name": name, "value": secret, "kind": "x"}),
        "pair in broken JSON": f'[{{\n  "name": "{name}",\n  "value": "{secret}"\n}},',
    }


FORMS: Final = tuple(assigned("", ""))


def test_each_name_in_each_form() -> None:
    """Alone, and with a text that does not end in a line feed."""
    survivors = [
        (name, form) for name in NAMES for form, text in assigned(name, SECRET).items() if SECRET in redact_text(text)
    ]
    assert survivors == []


@given(form=st.sampled_from(FORMS), name=st.sampled_from(NAMES), before=st.lists(LINES), after=st.lists(LINES))
def test_no_secret_survives_in_a_text(form: str, name: str, before: list[str], after: list[str]) -> None:
    """Whatever the form, and whatever is around it."""
    text = "\n".join([*before, assigned(name, SECRET)[form], *after])
    for redacted in (redact_file("config.toml", text.encode()), redact_output(text.encode())):
        assert SECRET not in redacted.decode()
    assert SECRET not in redact_text(text)


@given(
    name=st.sampled_from(NAMES),
    wrap=st.lists(st.sampled_from(["object", "list", "text"]), max_size=5),
    value=st.sampled_from([SECRET, [SECRET], {"x": [SECRET]}]),
)
def test_no_secret_survives_in_a_document(name: str, wrap: list[str], value: JsonValue) -> None:
    """At any depth, also in texts that are documents themselves."""
    document: JsonValue = {name: value}
    wraps: Mapping[str, Callable[[JsonValue], JsonValue]] = {
        "object": lambda inner: {"a": inner},
        "list": lambda inner: [1, inner],
        "text": json.dumps,
    }
    for one in wrap:
        document = wraps[one](document)
    assert SECRET not in json.dumps(redact(document))
    assert SECRET not in redact_file("x.json", json.dumps(document, indent=2).encode()).decode()


@pytest.mark.parametrize(
    "document",
    [
        ["plugin", "--password", SECRET],
        [{"name": "DB_PASSWORD", "value": SECRET}],
        {"env": {"name": "DB_PASSWORD", "value": SECRET}},
        {f"https://user:{SECRET}@host": {}},
        {"url": f"https://{SECRET}@host/path"},
        {"url": f"https://{SECRET}:x-oauth-basic@host:8080/path"},
        {"url": f"https://user:a/{SECRET}@host"},
        {"text": f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----\nmore"},
    ],
)
def test_other_forms_in_documents(document: JsonValue) -> None:
    """Command lines, variables, keys that are URLs, and private keys."""
    assert SECRET not in json.dumps(redact(document))


def test_private_keys() -> None:
    """They are removed to their end, on one line or several, and if the end is missing; what follows stays."""
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----"
    assert redact_text(f"before\n{key}\nafter") == f"before\n {REDACTED}\nafter"
    assert SECRET not in redact_text(key.replace("\n", "\\n"))
    assert SECRET not in redact_text(key[: key.index("-----END")])


def test_a_configuration_file_becomes_json() -> None:
    """Without its comments, which may have anything."""
    text = b'# token = "x"\n[[network]]\nname = "lan"\noptions = { "cni.args.password" = "x", "cni.args.a" = "b" }'
    assert parse_json(redact_file("config.toml", text)) == {
        "network": [{"name": "lan", "options": {"cni.args.password": REDACTED, "cni.args.a": "b"}}]
    }


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_names(name: str) -> None:
    """Their values are facts that a report needs."""
    for form, text in assigned(name, "fact").items():
        assert "fact" in redact_text(text), form
    assert redact({name: "fact"}) == {name: "fact"}


def test_what_follows_a_secret_is_kept() -> None:
    """A line that is not deeper, and no part of the value, is not removed."""
    text = "apiVersion: v1\nusers:\n- user:\n    client-key-data: abc\n    name: web\ncontexts: []"
    assert redact_text(text) == text.replace("abc", REDACTED)


def test_a_file_that_cannot_be_parsed_is_left_out() -> None:
    """Such as a kubeconfig, which is YAML: the values of a format that is not known are not found with certainty."""
    text = f"users:\n- name: web\n  user: {{client-key-data: {SECRET}}}"
    assert redact_file("kubeconfig", text.encode()) == b"59 bytes, left out: neither JSON nor TOML\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://token@host:1/a", f"https://{REDACTED}@host:1/a"),
        ("https://user:a@b@host", f"https://{REDACTED}@host"),
        ("https://host/@scope/a", "https://host/@scope/a"),
        ("https://host?mail=a@b", "https://host?mail=a@b"),
        ("a@b https://host:1/a", "a@b https://host:1/a"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    """All user information is removed, because a name alone may be a token; a path is kept."""
    assert redact_text(url) == shown


def test_a_long_line_is_truncated() -> None:
    """It says how much is missing; a JSON object of any length is kept whole."""
    assert redact_text("x" * 10_000).endswith("x [1808 characters removed]")
    document = json.dumps({"facts": ["fact " * 5] * 1000}, separators=(",", ":"))
    assert redact_text(document) == document


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    "part",
    [
        *("a", "A", "Aa", "pass", "a-", "_.-", "key-", "data", "s", "1"),
        *(
            '"',
            "'",
            "\\",
            '\\"',
            '"""',
            " ",
            "[",
            "{",
            '{"a":',
            "key:",
            "key=[",
            "password: |",
            "--password ",
            "token[a",
        ),
        *("name:", "- name: key ", " value:", "{name"),
        *("://", "a://", "://a:", "@", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "-----"),
    ],
)
def test_the_time_is_proportional_to_the_length(part: str, end: str) -> None:
    """Five thousand characters of any pattern, on one line or many; a cubic pattern took 46 s for 2000."""
    text = (part + end) * (5_000 // len(part + end))
    assert len(redact_text(text)) <= 16 * len(text)
    assert len(json.dumps(redact(text))) <= 32 * len(text)
    redact({text: text})
