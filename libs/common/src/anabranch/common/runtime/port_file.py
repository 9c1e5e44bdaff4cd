"""The file in which a service tells whoever started it the port of its health checks."""

import errno
from pathlib import Path

from anabranch.common.errors import InvalidSetting, NoRoom

PORT_FILE_VARIABLE = "ANABRANCH_PORT_FILE"
"""The environment variable that names the file."""


def write_port_file(path: Path, port: int) -> None:
    """Write the port as decimal text, atomically. Raises InvalidSetting; NoRoom if the disk is
    full."""
    draft = path.with_name(path.name + ".new")
    try:
        draft.write_text(f"{port}\n")
        draft.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom("the disk has no room for the port file", path=str(path)) from error
        raise InvalidSetting(
            "port file cannot be written", variable=PORT_FILE_VARIABLE, path=str(path)
        ) from error
