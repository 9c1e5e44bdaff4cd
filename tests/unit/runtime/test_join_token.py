"""The secret of the cluster, as controllers and stores read it from a file."""

from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.join_token import read_join_token


def test_the_token_is_the_text_of_the_file_without_white_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" a secret\n")
    assert read_join_token(tmp_path / "token") == "a secret"
    assert read_join_token(None) == ""


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSetting) as refused:
        read_join_token(path)
    assert refused.value.fields["path"] == str(path)
