"""The process that a shell starts as `anabranch` while `kit.forked_commands` lasts.

It hands over its arguments and files, passes on signals, and ends as the program ends. It imports
next to nothing, since its start is what it saves.
"""

import json
import os
import signal
import socket
import sys

REQUEST_SIZE_MAX = 1 << 18
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(address: str, arguments: list[str]) -> int:
    """Have the program run; its exit code, negative if a signal ended it."""
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "directory": os.getcwd(),  # noqa: PTH109  `pathlib` takes a while to import
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_SIZE_MAX)
        keeper.connect(address)
        socket.send_fds(keeper, [json.dumps(request).encode()], [0, 1, 2])
        for number in PASSED_ON:
            signal.signal(number, lambda got, _: keeper.send(bytes([got])))
        return int(keeper.recv(32) or -signal.SIGKILL)


def end_like(code: int) -> None:
    """End with this exit code, or by the signal that it stands for."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)
    os._exit(code)


if __name__ == "__main__":
    end_like(run(sys.argv[1], sys.argv[2:]))
