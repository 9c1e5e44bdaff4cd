"""Where NATS is: parsed once, from URLs or an endpoints file, and shown without secrets."""

import json
import pickle
from pathlib import Path
from traceback import format_exception

import pytest
from pydantic import SecretStr

from anabranch.common.errors import InvalidSetting, Unauthorized, Unavailable
from anabranch.common.runtime.nats_target import Login, NatsTarget, TlsFiles, Token, nats_target

SECRET = "s3cret"
WORD = SecretStr(SECRET)


@pytest.mark.parametrize(
    ("text", "addresses", "credentials"),
    [
        ("nats://a:4222", ("nats://a:4222",), None),
        ("nats://a", ("nats://a",), None),
        ("a:4222", ("nats://a:4222",), None),
        ("nowhere", ("nats://nowhere",), None),
        ("tls://[::1]:4222/", ("tls://[::1]:4222",), None),
        ("wss://a/nats", ("wss://a/nats",), None),
        ("nats://a:1, tls://b:2", ("nats://a:1", "tls://b:2"), None),
        (f"nats://u:{SECRET}@a:1", ("nats://a:1",), Login("u", WORD)),
        (f"u:{SECRET}@a:1", ("nats://a:1",), Login("u", WORD)),
        (f"nats://{SECRET}@a:1", ("nats://a:1",), Token(WORD)),
        ("nats://u:p%40%2C%2F@a:1", ("nats://a:1",), Login("u", SecretStr("p@,/"))),
        (f"nats://u:{SECRET}@a:1,nats://b:1", ("nats://a:1", "nats://b:1"), Login("u", WORD)),
        (
            f"nats://u:{SECRET}@a:1,nats://u:{SECRET}@b:1",
            ("nats://a:1", "nats://b:1"),
            Login("u", WORD),
        ),
    ],
)
def test_urls_are_taken_apart(
    text: str, addresses: tuple[str, ...], credentials: Login | Token | None
) -> None:
    target = nats_target(text)
    assert (target.addresses, target.credentials) == (addresses, credentials)
    assert SECRET not in f"{target} {target!r}"
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nats://",
        "http://a:1",
        "nats://a:x",
        "nats://a:0",
        "nats://a:1/path",
        "nats://a:1?tls=true",
        "nats://a:1,",
        f"http://u:{SECRET}@a:1",
        f"nats://u:{SECRET}@a:x",
        f"nats://u:{SECRET}/x@a:1",
        f"nats://u:1,{SECRET}@a:1",
        f"nats://u:{SECRET}@a:1,nats://v:{SECRET}@b:1",
    ],
)
def test_what_is_no_address_is_refused_without_showing_credentials(text: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        nats_target(text)
    assert SECRET not in "".join(format_exception(refused.value))


def test_credentials_are_given_once() -> None:
    with pytest.raises(InvalidSetting, match="given twice"):
        NatsTarget.at("nats://u:p@a:1", credentials_file=Path("c"))


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(InvalidSetting, match="needs its key"):
        TlsFiles(cert=Path("cert.pem"))


@pytest.mark.parametrize(
    ("target", "encrypted"),
    [
        (NatsTarget.at("nats://a"), False),
        (NatsTarget.at("tls://a"), True),
        (NatsTarget.at("nats://a,tls://b"), True),
        (NatsTarget.at("nats://a", tls=TlsFiles()), True),
    ],
)
def test_tls_files_and_addresses_of_tls_demand_tls(target: NatsTarget, encrypted: bool) -> None:
    assert target.encrypted is encrypted


def test_an_endpoints_file_names_other_files_from_its_own_directory(tmp_path: Path) -> None:
    told = {
        "nats": "tls://a:1,tls://b:1",
        "nats_credentials": "user.creds",
        "nats_tls": {"ca": "ca.pem", "cert": "/elsewhere/cert.pem", "key": "key.pem"},
    }
    (tmp_path / "endpoints.json").write_text(json.dumps(told))

    target = nats_target(tmp_path)

    tls = TlsFiles(tmp_path / "ca.pem", Path("/elsewhere/cert.pem"), tmp_path / "key.pem")
    assert target == NatsTarget(("tls://a:1", "tls://b:1"), tmp_path / "user.creds", tls)
    assert nats_target(target) is target


def test_an_endpoints_file_of_older_releases_has_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text('{"nats": "nats://a:1", "gateway": "http://b"}')
    assert nats_target(tmp_path) == NatsTarget(("nats://a:1",))


@pytest.mark.parametrize("where", ["./nothing", "no/where", "endpoints.json", Path("nowhere")])
def test_where_no_cluster_has_published_its_endpoints_the_remedy_is_to_start_one(
    where: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable) as refused:
        nats_target(where)
    assert "anabranch up" in refused.value.remedy
    assert refused.value.fields["path"] == str(Path(where))


def test_the_endpoints_file_of_another_user_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endpoints.json").write_text('{"nats": "nats://a:1"}')

    def refuse(_path: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(Unauthorized, match="another user"):
        nats_target(tmp_path)


@pytest.mark.parametrize(
    "told",
    [
        "{",
        "[]",
        "{}",
        '{"nats": 1}',
        '{"nats": "nats://a", "nats_tls": {"authority": "ca.pem"}}',
        '{"nats": "nats://a", "nats_tls": "ca.pem"}',
        '{"nats": "nats://a", "nats_credentials": ["c"]}',
    ],
)
def test_a_malformed_endpoints_file_is_named(told: str, tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text(told)
    with pytest.raises(InvalidSetting, match="endpoints file cannot be understood") as refused:
        nats_target(tmp_path)
    assert refused.value.fields["path"] == str(tmp_path / "endpoints.json")
