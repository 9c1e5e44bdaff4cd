"""Reads JetStream's configuration from the NATS server's monitoring port."""

from collections.abc import Mapping

from anabranch.common.adapters.nats_monitor import ask_monitor
from anabranch.common.errors import MetadataNotSynced, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.durability import MONITOR_SETTING, SYNC_SETTING

ASK_BUDGET_S = 10.0
PAUSE_S = 0.2


async def jetstream_status(
    url: str, clock: Clock, *, budget_s: float = ASK_BUDGET_S
) -> Mapping[str, object]:
    """JetStream's state and configuration, from the server. Raises MetadataNotSynced.

    The request is repeated until `budget_s` is used up, because the server may still be starting.
    """
    deadline = clock.monotonic() + budget_s
    while True:
        try:
            return await ask_monitor(url, "jsz?config=1")
        except Unavailable as error:
            if clock.monotonic() >= deadline:
                raise MetadataNotSynced(
                    "the NATS monitoring port does not answer, so the durability of the metadata "
                    "is unknown",
                    remedy=f"give the server `http: …` and the controller {MONITOR_SETTING}, or "
                    f"set {SYNC_SETTING}=unchecked",
                    url=url,
                    cause=str(error.fields.get("cause")),
                ) from error
        await clock.sleep(PAUSE_S)
