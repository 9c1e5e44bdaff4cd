"""The credentials of the embedded NATS server: drawn at the first start, kept afterwards.

All clients share them. The file is in the data directory, which no other user can enter, and only
its owner can read it. A data directory of an older release has no such file and gets one at its
next start: streams and buckets belong to NATS's default account with and without credentials. They
matter only while the cluster runs, so a deleted file is drawn again.
"""

import json
from collections.abc import Callable

from anabranch.cli.up.directory import DataDirectory
from anabranch.common.errors import DirectoryUnusable
from anabranch.common.runtime.nats_target import Login

USER = "anabranch"


def kept_credentials(directory: DataDirectory, draw: Callable[[], str]) -> Login:
    """The credentials of a claimed data directory; `draw` returns a new password if it has none.

    They are durable before this returns. Raises DirectoryUnusable.
    """
    file = directory.nats_credentials_file
    try:
        if not file.exists():
            told = json.dumps({"user": USER, "password": draw()})
            directory.write(file, told + "\n")
        file.chmod(0o600)
        found = json.loads(file.read_text())
        return Login.of(str(found["user"]), str(found["password"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            "the credentials of the NATS server cannot be used",
            remedy="delete the file: the next start draws new credentials, and no data is lost",
            path=str(file),
            cause=type(error).__name__,
        ) from None  # a JSON error contains the text
