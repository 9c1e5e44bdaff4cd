"""How a batch comes into the queue of Kafka's client, of which any part may be full."""

from typing import Any, Protocol

Message = dict[str, Any]
"""What `produce_batch` takes for an event: `value`, and `key` and `callback` if need be."""
FULL_WAIT_SECONDS = 0.005


class BatchProducer(Protocol):
    """The part of the client's producer that is used here."""

    def produce_batch(self, topic: str, messages: list[Message]) -> int:
        """Queue messages → how many. It marks each of the others with `_error`."""
        ...

    def poll(self, timeout: float) -> int:
        """Forget messages that were acknowledged; wait at most so many seconds for one."""
        ...


def queue_all(producer: BatchProducer, topic: str, messages: list[Message]) -> None:
    """Queue messages in their order, and wait for room meanwhile."""
    rest = messages
    while rest:
        try:
            if producer.produce_batch(topic, rest) == len(rest):
                return
        except BufferError:  # some clients raise it if there is no room for even one
            producer.poll(FULL_WAIT_SECONDS)
            continue
        rest = [message for message in rest if message.pop("_error", None) is not None]
        producer.poll(FULL_WAIT_SECONDS)
