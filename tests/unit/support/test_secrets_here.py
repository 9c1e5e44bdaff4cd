"""The secrets of this machine are known from its environment, its addresses and its files."""

import json
from pathlib import Path

from anabranch.cli.support.secrets_here import known_secrets, secrets_in_file, secrets_in_url


def test_secrets_come_from_variables_urls_and_the_files_that_they_name(tmp_path: Path) -> None:
    named = tmp_path / "redis-password"
    named.write_text("from-a-file\n")
    found = known_secrets(
        {
            "AWS_SECRET_ACCESS_KEY": "of-s3",
            "ANABRANCH_GATEWAY_NATS_URL": "nats://u:in%40url@h:4222",
            "ANABRANCH_X_PASSWORD_FILE": str(named),
            "HOME": "/srv/me",
            "ANABRANCH_Y_TOKEN_FILE": str(tmp_path / "missing"),
        },
        None,
        ["redis://:of-redis@h"],
    )
    assert found == {"of-s3", "in%40url", "in@url", "from-a-file", "of-redis"}


def test_secrets_of_a_data_directory_are_known_whatever_its_files_are_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "nats.conf").write_text('user: "anabranch"\n  password: "in-conf"\n')
    endpoints = {"nats": "nats://u:in-url@h", "nats_credentials": "other.json"}
    (tmp_path / "endpoints.json").write_text(json.dumps(endpoints))
    (tmp_path / "other.json").write_text(json.dumps({"user": "anabranch", "password": "in-json"}))
    assert known_secrets({}, tmp_path) == {"in-conf", "in-json", "in-url"}


def test_credentials_files_may_have_several_forms() -> None:
    assert secrets_in_file('{"token": "t"}') == {"t"}
    assert secrets_in_file("[default]\naws_access_key_id = A\naws_secret_access_key = b\n") == {"b"}
    assert secrets_in_file("SUSEED\n") == {"SUSEED"}
    assert secrets_in_file("") == set()


def test_the_password_of_each_url_is_known_and_a_lone_user_is_a_token() -> None:
    assert secrets_in_url("nats://u:p1@a:1,nats://u:p2@b:2") >= {"p1", "p2"}
    assert secrets_in_url("nats://token@a:1") == {"token"}
    assert secrets_in_url("http://h/x@y") == set()
