"""The phases of one opening of a container."""

from itertools import product
from unittest.mock import patch

import pytest

from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.segstore.domain.container.life import AFTER_FAILURE, PHASES, Phase, Step, next_phase
from anabranch.segstore.ports import ContainerLog
from anabranch.segstore.shell.container.container import Container
from kit.container_driver import ContainerDriver


def test_only_a_container_that_was_never_served_cannot_leave() -> None:
    impossible = set(product(Phase, Step)) - PHASES.keys()
    assert impossible == {(Phase.OPENING, Step.LEAVE), (Phase.SERVING, Step.SERVE),
                        (Phase.CLOSING, Step.SERVE)}  # fmt: skip
    for phase, step in impossible:
        with pytest.raises(AssertionError):
            next_phase(phase, step)


def test_an_end_is_for_good() -> None:
    assert {next_phase(Phase.ENDED, step) for step in Step} == {Phase.ENDED}
    assert {next_phase(phase, Step.FAIL) for phase in Phase} == {Phase.ENDED}


def test_every_error_has_a_row() -> None:
    assert AFTER_FAILURE[-1].errors == (AnabranchError,)


def test_a_container_whose_log_failed_during_the_replay_does_not_serve() -> None:
    serve = Container.serve

    def too_late(container: Container, log: ContainerLog) -> None:
        container.log_failed(DiskFailed("the log is gone"))
        serve(container, log)

    with patch.object(Container, "serve", too_late):
        driver = ContainerDriver()
    with pytest.raises(Unavailable):
        driver.create()


def test_the_container_goes_by_the_table() -> None:
    driver = ContainerDriver()
    with patch.dict(PHASES, {(Phase.SERVING, Step.LEAVE): Phase.SERVING}):
        driver.container.stop_accepting()
    driver.create()
    driver.container.stop_accepting()
    with pytest.raises(Unavailable):
        driver.create()
