"""Servers that are hurt while tests use them: when they are struck, and when they are not."""

import threading

import pytest

from kit.infra.hurting import HURT_VARIABLE, HurtServer, chosen_hurts


class Recorder:
    """A server that notes what is done to it."""

    url = "redis://127.0.0.1:1"

    def __init__(self) -> None:
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    def kill(self) -> None:
        self.done.append("kill")

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")


def test_a_running_server_is_struck_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.infra.hurting.PAUSE_S", (0.0, 0.0))
    struck = threading.Event()
    hurt = HurtServer(Recorder(), struck.set, seed=1)
    with hurt.hurting():
        assert struck.wait(5)
    after = hurt.strikes
    assert hurt.strikes == after >= 1


def test_a_server_that_a_test_has_stopped_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server, strikes = Recorder(), list[str]()
    hurt = HurtServer(server, lambda: strikes.append("struck"), seed=1)
    rounds = iter([False, False, True])
    monkeypatch.setattr(hurt._ended, "wait", lambda _seconds: next(rounds))

    hurt.stop()
    hurt._go_on()
    assert strikes == []

    hurt.start()
    rounds = iter([False, True])
    hurt._go_on()
    assert strikes == ["struck"]
    assert server.done == ["stop", "start"]


def test_only_what_can_be_hurt_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HURT_VARIABLE, "redis,nats")
    assert chosen_hurts() == {"redis", "nats"}
    monkeypatch.setenv(HURT_VARIABLE, "tier2")
    with pytest.raises(ValueError, match="tier2"):
        chosen_hurts()
    monkeypatch.delenv(HURT_VARIABLE)
    assert chosen_hurts() == frozenset()
