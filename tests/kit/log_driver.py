"""Driving a durable log without an event loop: a queue of callbacks and a source of frames."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.ports import ContainerLog, FrameContents, LogAddress, ReplayedFrame
from kit.fixed_catalog import run_at_once


class Callbacks:
    """Stands where `loop.call_soon` stands; `run` calls until nothing is left."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def __call__(self, callback: Callable[[], None]) -> None:
        self._waiting.append(callback)

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self) -> None:
        while self._waiting:
            self._waiting.popleft()()


@dataclass(slots=True)
class ScriptedSource:
    """A container reduced to a queue of frames: each operation is one frame.

    `taken` and `durable` map sequence numbers to payloads; `failures` are the errors heard, and
    `journal_failures` those among them that ended the whole journal.
    """

    next_sequence: int = 1
    waiting: deque[FrameContents] = field(default_factory=deque)
    taken: dict[int, bytes] = field(default_factory=dict)
    durable: dict[int, bytes] = field(default_factory=dict)
    addresses: dict[int, LogAddress] = field(default_factory=dict)
    failures: list[AnabranchError] = field(default_factory=list)
    journal_failures: list[AnabranchError] = field(default_factory=list)

    def put(self, payload: bytes, count: int = 1) -> FrameContents:
        """Queue a frame of `count` operations, its payload in two buffers."""
        half = len(payload) // 2
        parts: list[Buffer] = [payload[:half], memoryview(payload)[half:]]
        contents = FrameContents(self.next_sequence, count, parts, len(payload))
        self.next_sequence += count
        self.waiting.append(contents)
        return contents

    def take_frame(self, size_max: int) -> FrameContents | None:
        assert size_max > 0
        if not self.waiting:
            return None
        contents = self.waiting.popleft()
        self.taken[contents.first_sequence] = b"".join(contents.payload)
        return contents

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        assert not self.failures, "nothing becomes durable after a failure"
        assert contents.first_sequence not in self.durable, "a frame is told once"
        assert contents.first_sequence > max(self.durable, default=0), "frames come in order"
        self.durable[contents.first_sequence] = b"".join(contents.payload)
        self.addresses[contents.first_sequence] = address

    def log_failed(self, error: AnabranchError) -> None:
        self.failures.append(error)

    def journal_failed(self, error: AnabranchError) -> None:
        self.failures.append(error)
        self.journal_failures.append(error)


def read_frame(log: ContainerLog) -> Callable[[LogAddress], bytes]:
    """Reads a frame of a log whose adapter does not wait."""
    return lambda address: run_at_once(log.read_aside(address))


def replayed_frames(log: ContainerLog, after_sequence: int = 0) -> list[ReplayedFrame]:
    """What a log in this process replays; its adapter must not wait."""
    return run_at_once(_collected(log, after_sequence))


def replayed(log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
    """What a log in this process replays: first sequence → payload."""
    return run_at_once(replay_of(log, after_sequence))


async def replay_of(log: ContainerLog, after_sequence: int = 0) -> dict[int, bytes]:
    """What any log replays: first sequence → payload."""
    frames = await _collected(log, after_sequence)
    return {frame.first_sequence: frame.payload for frame in frames}


async def _collected(log: ContainerLog, after_sequence: int) -> list[ReplayedFrame]:
    return [frame async for frame in log.replay(after_sequence)]
