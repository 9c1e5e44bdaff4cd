"""Reads the secret by which a controller recognises the stores of its cluster."""

from pathlib import Path

from anabranch.common.errors import InvalidSetting


def read_join_token(path: Path | None) -> str:
    """The token in the file, without white space around it; "" without a file.

    Raises InvalidSetting if the file cannot be read, or holds nothing.
    """
    if path is None:
        return ""
    try:
        token = path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            "the file with the join token cannot be read",
            remedy="name a file of text that this process may read",
            path=str(path), cause=str(error),
        ) from error  # fmt: skip
    if not token:
        raise InvalidSetting(
            "the file with the join token is empty",
            remedy="write the token of the cluster into it, or unset the setting",
            path=str(path),
        )
    return token
