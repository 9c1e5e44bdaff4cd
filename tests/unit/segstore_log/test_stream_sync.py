"""An open of a log requires that every server of its stream syncs always."""

import asyncio

import pytest

from anabranch.common.adapters import nats_monitor
from anabranch.common.errors import LogNotSynced, Unavailable
from anabranch.segstore.adapters.jetstream_log.sync_check import MonitoredSync

Answers = dict[str, object]


def answer(name: str, *, synced: bool) -> Answers:
    return {
        "server_id": name,
        "server_name": name,
        "jetstream": {"config": {"sync_always": synced}},
    }


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    found: Answers = {}

    async def ask(url: str, page: str) -> object:
        assert page == "varz"
        if url not in found:
            raise Unavailable("nobody listens")
        return found[url]

    monkeypatch.setattr(nats_monitor, "ask_monitor", ask)
    return found


def test_servers_that_all_sync_are_accepted_and_not_asked_again(answers: Answers) -> None:
    answers |= {"http://1": answer("n1", synced=True), "http://2": answer("n2", synced=True)}
    sync = MonitoredSync(["http://1", "http://2"])
    asyncio.run(sync.check(("n1", "n2")))
    answers.clear()
    asyncio.run(sync.check(("n2",)))


def test_a_server_that_died_after_the_store_began_needs_no_answer(answers: Answers) -> None:
    answers |= {"http://1": answer("n1", synced=True), "http://2": answer("n2", synced=False)}
    sync = MonitoredSync(["http://1", "http://2"])
    asyncio.run(sync.ask())
    answers.clear()
    asyncio.run(sync.check(("n1",)))
    with pytest.raises(LogNotSynced):
        asyncio.run(sync.check(("n1", "n2")))


def test_one_server_that_does_not_sync_is_named(answers: Answers) -> None:
    answers |= {"http://1": answer("n1", synced=True), "http://2": answer("n2", synced=False)}
    with pytest.raises(LogNotSynced, match="before they are on the disk") as refused:
        asyncio.run(MonitoredSync(["http://1", "http://2"]).check(("n1", "n2")))
    assert refused.value.fields["server"] == "n2"
    assert "sync_interval: always" in refused.value.remedy


def test_a_server_that_no_monitoring_port_knows_is_refused(answers: Answers) -> None:
    answers["http://1"] = answer("n1", synced=True)
    with pytest.raises(LogNotSynced) as refused:
        asyncio.run(MonitoredSync(["http://1", "http://2"]).check(("n1", "n2")))
    assert "ANABRANCH_SEGSTORE_NATS_MONITOR_URLS" in refused.value.remedy


def test_all_servers_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[str] = []
    all_asked = asyncio.Event()

    async def ask(url: str, _page: str) -> object:
        waiting.append(url)
        if len(waiting) == 3:
            all_asked.set()
        await all_asked.wait()
        return answer(url, synced=True)

    monkeypatch.setattr(nats_monitor, "ask_monitor", ask)

    async def check() -> None:
        async with asyncio.timeout(5):
            await MonitoredSync(["c", "a", "b"]).check(("a", "b", "c"))

    asyncio.run(check())
