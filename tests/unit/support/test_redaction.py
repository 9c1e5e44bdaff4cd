"""No form of a secret passes the redactor, and a text of JSON stays one."""

import json
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.cli.support.redaction import MASK, Redactor, is_secret_name

SECRET = "hunter2-Zq"
S3_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SEED = "SUAKINP3Z2BPUXWOFSW2FZC7TFJCMMU7DHKP2C62IJQUDASOCDSTDTRMJQ"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"nats://anabranch:{SECRET}@host:4222",
        f"redis://:{SECRET}@host",
        f"nats://{SECRET}@host:4222",
        f"nats://u:{SECRET}@a:1,nats://u:{SECRET}@b:1",
        f"tls://u:x@y/{SECRET}@host",
        f'{{"password": "{SECRET}"}}',
        f'{{"nats_password":"{SECRET}", "user": "u"}}',
        json.dumps({"event": json.dumps({"secret": SECRET})}),
        json.dumps({"event": json.dumps({"a": json.dumps({"token": SECRET})})}),
        f"{{'password': '{SECRET}'}}",
        f"  password: {SECRET}",
        f'  password: "{SECRET}"',
        f"ANABRANCH_X_PASSWORD={SECRET} rest",
        f"export AWS_SECRET_ACCESS_KEY='{SECRET}'",
        f"aws_secret_access_key = {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f'{{"authorization": "Bearer {SECRET}"}}',
        f"Login(user='u', password=SecretStr('{SECRET}'))",
        f"password=str('{SECRET}') next",
        f"https://b.example/x?a=1&X-Amz-Signature={SECRET}&b=2",
        f"https://b.example/x?sig={SECRET}&b=2",
        f"DefaultEndpointsProtocol=https;AccountKey={SECRET}==;x=y",
        f"api-key: {SECRET}",
        f"x_api_key={SECRET}",
        f"passphrase = {SECRET}",
        f'{{"password": "a\\"b{SECRET}"}}',
        f'{{"secret": "{SECRET}',
        f"token: '{SECRET}",
    ],
)
def test_a_secret_that_its_surroundings_betray_is_taken_out(text: str) -> None:
    redactor = Redactor()
    found = redactor.text(text)
    assert SECRET not in found
    assert MASK in found
    assert redactor.count > 0


@pytest.mark.parametrize(
    "secret", [S3_SECRET, SEED, TOKEN, "AKIAIOSFODNN7EXAMPLE", PEM, PEM.replace("\n", "\\n")]
)
def test_a_secret_that_looks_like_one_is_taken_out_wherever_it_stands(secret: str) -> None:
    for text in (secret, f"it failed: {secret}\nnext", json.dumps({"event": f"with {secret}."})):
        found = Redactor().text(text)
        assert secret not in found
        assert json.dumps(secret)[1:-1] not in found


def test_the_rest_of_a_private_key_that_lost_its_beginning_is_taken_out() -> None:
    rest = PEM.split("\n", 2)[2]
    assert Redactor().text(f"{rest}\nnext line") == f"{MASK}\nnext line"
    assert Redactor().text("before\n" + PEM.rsplit("\n", 1)[0]) == f"before\n{MASK}"


@example("a/b c?d'e\"f", "", "")
@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_known_secret_is_taken_out_in_every_form(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    forms = (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(json.dumps(secret)[1:-1])[1:-1],
        quote(secret, safe=""),
        repr(secret)[1:-1],
    )
    for form in forms:
        assert form not in redactor.text(f"{before}{form}{after}").replace(MASK, "\0")


def test_a_short_known_secret_counts_as_a_word_and_an_ordinary_word_never() -> None:
    redactor = Redactor(["abc1", "true", "x"])
    assert redactor.text('{"a": "abc1", "b": "xabc12", "c": true}') == (
        '{"a": "***", "b": "xabc12", "c": true}'
    )


@pytest.mark.parametrize(
    "record",
    [
        {"password": 12345678, "n": 1},
        {"password": None, "token": True, "secret": ""},
        {"read_token": {"shard": 1}, "tokens": [{"shard": 2}], "expired_keys": 3},
        {"nested": {"password": "x", "after": [1, {"token": "a,b}"}]}},
    ],
)
def test_redacted_json_is_still_json(record: dict[str, object]) -> None:
    for indent in (None, 2):
        found = json.loads(Redactor().text(json.dumps(record, indent=indent)))
        assert found.keys() == record.keys()


def test_what_is_no_secret_stays() -> None:
    for text in (
        '{"event": "part changed", "part": "membership", "at": "2026-11-23T09:09:36.258Z"}',
        "the journal directory is /data/segstore/journal, epoch 4294967297",
        '{"nats_credentials_file": "/etc/anabranch/nats.json", "segments": 4}',
        "operation 162254b37a40ff582d77cec34ec779790d2a67f9 of demo/sensors",
        "http://127.0.0.1:8080/v1/scopes/demo?page=2",
        '{"expired_keys": 3, "tracking_total_keys": 0, "signal": 15}',
        "tokens are not checked yet; the password is wrong",
    ):
        assert Redactor().text(text) == text


def test_a_variable_is_secret_by_its_name_unless_it_names_a_file() -> None:
    secret = ("X_PASSWORD", "AWS_SECRET_ACCESS_KEY", "X_TOKEN", "MY_KEY", "A_CREDENTIALS", "SEED")
    assert all(is_secret_name(name) for name in secret)
    plain = ("ANABRANCH_NATS_URL", "X_CREDENTIALS_FILE", "PWD", "KEYBOARD", "TOKENIZERS_PARALLEL")
    assert not any(is_secret_name(name) for name in plain)


def test_a_large_text_is_redacted_in_one_pass() -> None:
    text = ("a" * 70 + "password" * 3) * 20_000
    assert Redactor(["known-secret"]).text(text) == text
