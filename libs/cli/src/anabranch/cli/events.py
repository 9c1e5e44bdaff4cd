"""Events with their details, as a batch that commands print."""

from dataclasses import dataclass

from anabranch.client import Event


@dataclass(frozen=True, slots=True)
class Events:
    """An `EventBatch` of events that came one by one."""

    found: list[Event]

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.found]

    def events(self) -> list[Event]:
        return self.found
