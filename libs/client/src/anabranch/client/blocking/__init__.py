"""The client for programs that block: scripts and notebooks. It works as the asynchronous one.

::

    from anabranch.client import blocking

    with blocking.connect(Path("out/anabranch")) as client:
        client.streams.create("plant/sensors", segments=4)
        with client.writer("plant/sensors") as writer:
            writer.write_batch([b"21.5", b"21.7"], ["boiler", "boiler"])
        with client.reader("plant/sensors", until_tail=True) as reader:
            for event in reader:
                print(event.key, event.payload)

One thread runs one event loop for a client and all of its writers and readers. This works also
inside a running loop, as in Jupyter. Methods, arguments and errors are those of the asynchronous
client (`proxy` describes the translation). Several threads may use one client, but only one at a
time a reader or an iterator. Ctrl-C cancels the pending call, which raises KeyboardInterrupt; a
forked process must connect by itself.
"""

import contextlib
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from anabranch.client.blocking.background import Background, Stay
from anabranch.client.blocking.proxy import Blocking, Target
from anabranch.client.client import Client
from anabranch.client.connecting import CONNECT_TIMEOUT_S
from anabranch.client.connecting import connect as connect_asynchronously
from anabranch.common.errors import Closed
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import NatsTarget

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["Blocking", "BlockingClient", "connect"]


class BlockingClient(Blocking[Client]):
    """An open client and its thread; leaving its block ends both.

    ::

        with blocking.connect("nats://127.0.0.1:4222") as client:
            client.streams.create("plant/sensors", segments=4)
    """

    def close(self) -> None:
        """Close the client, its writers and readers, and its thread.

        Events that were written and not flushed may be lost. Repeatable; in a forked child it does
        nothing.

        ::

            client = blocking.connect("nats://127.0.0.1:4222")
            client.close()
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        target = self._target
        try:
            with contextlib.suppress(Closed):  # it has ended, or lives in another process
                if target.stays:
                    super().__exit__(kind, error, trace)
        finally:
            target.background.thread.close()
        return False


def connect(
    where: NatsTarget | Path | str,
    *,
    name: str = "anabranch-client",
    timeout_s: float = CONNECT_TIMEOUT_S,
    call_timeout_s: float | None = None,
    tracer: "Tracer | None" = None,
    token: str = "",
) -> BlockingClient:
    """Open a client; close it, or use it in a `with` block.

    `call_timeout_s` limits every single wait of the client and its parts, see
    `Blocking.with_timeout`. The other parameters are those of the asynchronous `connect`. Raises
    Unavailable if nothing answers in time, Unauthorized, InvalidSetting.

    ::

        with blocking.connect("nats://127.0.0.1:4222", call_timeout_s=30) as client:
            client.scopes.create("plant")
    """
    connecting = connect_asynchronously(
        where, name=name, timeout_s=timeout_s, tracer=tracer, token=token
    )
    background = Background(SystemClock())
    stay = Stay(connecting, background.thread.tasks)
    try:
        client = background.thread.perform(stay.enter)
    except BaseException:
        background.thread.close()
        raise
    assert isinstance(client, Client)
    return BlockingClient(Target(client, background, [stay]), call_timeout_s)
