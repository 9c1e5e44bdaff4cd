"""A log that would not acknowledge new operations has the container refuse them."""

from collections.abc import AsyncIterator

from anabranch.common.errors import AnabranchError, NotEnoughReplicas
from anabranch.common.wire.messages import Appended, Failed, SegmentInfo
from anabranch.segstore.ports import LogAddress, ReplayedFrame
from anabranch.segstore.shell.container.admission import admission_of
from kit.container_driver import ContainerDriver

REFUSAL = NotEnoughReplicas("too few copies", container=0, in_sync=1, needed=2)


class RefusingLog:
    """A `ContainerLog` that may refuse; everything else is not used."""

    def __init__(self) -> None:
        self.refusal: AnabranchError | None = None
        self.log_id = "the-log"

    def ready(self) -> None:
        raise NotImplementedError

    def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        raise NotImplementedError

    async def read_aside(self, address: LogAddress) -> bytes:
        raise NotImplementedError

    async def release(self, applied_sequence: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def refusing(driver: ContainerDriver) -> RefusingLog:
    log = RefusingLog()
    driver.container._admission = admission_of(log, driver.throttle)
    return log


def test_new_appends_are_refused_and_accepted_ones_wait() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.commit()
    session = driver.setup()
    driver.take_replies()
    log = refusing(driver)
    driver.append(session, 1, [b"accepted"])
    log.refusal = REFUSAL
    driver.append(session, 2, [b"refused"])
    driver.commit()
    first, second = driver.take_replies()
    assert isinstance(first, Appended)
    assert isinstance(second, Failed)
    assert second.code == "not-enough-replicas"
    log.refusal = None
    session = driver.setup()
    driver.append(session, 2, [b"accepted now"])
    driver.commit()
    assert isinstance(driver.take_replies()[-1], Appended)


def test_queries_do_not_wait_for_operations_that_cannot_be_acknowledged() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.commit()
    session = driver.setup()
    log = refusing(driver)
    driver.append(session, 1, [b"waits"])
    driver.take_replies()
    driver.info()
    assert driver.take_replies() == []
    log.refusal = REFUSAL
    driver.info()
    (answer,) = driver.take_replies()
    assert isinstance(answer, SegmentInfo)
    assert answer.length == 0


def test_a_log_that_never_refuses_costs_no_check() -> None:
    driver = ContainerDriver()
    assert driver.container._admission is driver.throttle
