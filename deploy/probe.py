"""A container's health check: exits 0 if the service in it answers `/readyz` with 200.

It runs inside the container and asks on the loopback address; the port is in the file that
``ANABRANCH_PORT_FILE`` names, where the service wrote it. Any other outcome is one line on
stderr, which the container engine keeps with the result, and exit code 1.
"""

import http.client
import os
import sys
from pathlib import Path

PORT_FILE_VARIABLE = "ANABRANCH_PORT_FILE"
TIMEOUT_SECONDS = 4.0
OK = 200


def why_not_ready(port_file: Path) -> str | None:
    """None if the service is ready, else what came instead."""
    try:
        port = int(port_file.read_text())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace").strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"no answer: {error}"
    return None if answer.status == OK else f"status {answer.status}: {body}"


if __name__ == "__main__":
    reason = why_not_ready(Path(os.environ[PORT_FILE_VARIABLE]))
    sys.exit(reason)
