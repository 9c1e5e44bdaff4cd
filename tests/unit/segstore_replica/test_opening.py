"""How an owner opens a replicated log: it waits for all members, and brings them to its history."""

import asyncio

import pytest

from anabranch.common.errors import CorruptJournal, Deposed, LogNotHere, Unavailable
from kit.log_driver import ScriptedSource
from kit.replica_world import LOG_ID, Led, ReplicaWorld, in_world


async def opening(w: ReplicaWorld, node: str, epoch: int) -> tuple["asyncio.Task[None]", Led]:
    """An opening that has come as far as it can."""
    source = ScriptedSource()
    opened: list[Led] = []

    async def run() -> None:
        opened.append(Led(await w.stores[node].log.open_log(0, LOG_ID, epoch, source), source))

    task = w.spawn(run())
    await asyncio.sleep(0.5)
    return task, opened[0] if opened else Led.__new__(Led)


@in_world()
async def test_the_first_owner_makes_its_copy_the_first_member(w: ReplicaWorld) -> None:
    await w.open("a", 1, ScriptedSource())
    assert w.register.changes[0] == ("a",)


@in_world()
async def test_an_opening_waits_until_every_member_has_synced_it(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.of("c").hold_acks = True
    task, _ = await opening(w, "b", 2)
    assert not task.done()
    w.peers.let_acks_go("c")
    await w.settle()
    assert task.done()
    assert w.stores["b"].history() == w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_a_member_that_does_not_answer_is_removed_before_the_owner_serves(
    w: ReplicaWorld,
) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.kill("a")
    w.register.away = False
    began_s = w.loop.time()
    new = Led(await w.open("b", 2, source := ScriptedSource(next_sequence=2)), source)
    assert w.loop.time() - began_s < 1
    assert w.register.members() == ("b", "c")
    assert await new.replayed() == [b"one"]


@in_world()
async def test_a_silent_member_delays_the_owner_by_one_deadline(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.of("a").silent = True
    began_s = w.loop.time()
    await w.open("b", 2, ScriptedSource(next_sequence=2))
    assert 1.5 <= w.loop.time() - began_s < 2
    assert w.register.members() == ("b", "c")


@in_world()
async def test_an_owner_does_not_serve_while_a_lost_member_cannot_be_removed(
    w: ReplicaWorld,
) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.kill("a")
    w.register.late = []
    source = ScriptedSource()
    with pytest.raises(Unavailable):
        await w.stores["b"].log.open_log(0, LOG_ID, 2, source)
    assert source.failures == [], "the error is raised"
    w.register.late = None
    await w.open("b", 3, ScriptedSource())
    assert w.register.members() == ("b", "c")


@in_world()
async def test_what_a_former_owner_wrote_alone_is_rewound(w: ReplicaWorld) -> None:
    old = await w.opened_by("a")
    await old.write(b"one")
    w.register.away = True
    w.peers.kill("b")
    w.peers.kill("c")
    await old.write(b"never acknowledged")
    assert old.durable == [b"one"]
    old.view.close()
    w.register.away = False
    w.peers.of("b").refused = w.peers.of("c").refused = False
    w.peers.kill("a")
    new = Led(await w.open("b", 2, source := ScriptedSource(next_sequence=2)), source)
    await new.write(b"two")
    w.peers.of("a").refused = False
    await w.all_in_sync()
    assert w.peers.counts["rewinds"] == 1
    assert w.peers.counts["resets"] == 2
    assert w.stores["a"].history() == w.stores["b"].history()
    assert await new.replayed() == [b"one", b"two"]
    again = await w.opened_by("a", 3)
    assert await again.replayed() == [b"one", b"two"]


@in_world()
async def test_a_wiped_copy_is_reset_after_it_has_left_the_isr(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.register.away = True
    w.stores["c"].wipe()
    w.peers.cut("c")
    await asyncio.sleep(5)
    assert w.peers.counts["resets"] == 2, "it may still be a member"
    w.register.away = False
    await w.until(lambda: w.peers.counts["resets"] == 3)
    await w.all_in_sync()
    assert w.register.changes[-2:] == [("a", "b"), ("a", "b", "c")]
    assert w.peers.counts["resets"] == 3
    assert w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_a_follower_that_lacks_released_messages_is_reset(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.kill("c")
    await led.write(b"two", b"three", b"four")
    await w.until(lambda: w.register.members() == ("a", "b"))
    await led.view.release(3)
    w.peers.of("c").refused = False
    await w.all_in_sync()
    assert w.peers.counts["resets"] == 3
    assert w.stores["c"].history() == w.stores["a"].history() == [(1, 4)]


@in_world()
async def test_a_store_whose_copy_is_not_in_the_isr_does_not_lead(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await led.write(b"one")
    await w.until(lambda: w.register.members() == ("a", "b"))
    with pytest.raises(LogNotHere):
        await w.stores["c"].log.open_log(0, LOG_ID, 2, ScriptedSource())


@in_world()
async def test_a_wiped_store_does_not_lead(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.stores["a"].wipe()
    with pytest.raises(LogNotHere):
        await w.stores["a"].log.open_log(0, LOG_ID, 2, ScriptedSource())


@in_world()
async def test_an_owner_whose_epoch_a_member_refuses_does_not_serve(w: ReplicaWorld) -> None:
    await w.opened_by("a")
    await w.stores["c"].copies.promise(0, LOG_ID, 3, None)
    source = ScriptedSource()
    with pytest.raises(Deposed):
        await w.stores["b"].log.open_log(0, LOG_ID, 2, source)
    assert source.failures == []


@in_world()
async def test_a_restarted_owner_leads_the_same_copy(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one", b"two")
    w.stores["a"].log.close()
    w.stores["a"].restart()
    again = await w.opened_by("a", 2)
    again.source.next_sequence = 3
    await again.write(b"three")
    assert again.durable == [b"three"]
    assert await again.replayed() == [b"one", b"two", b"three"]
    assert await again.replayed(2) == [b"three"]
    assert w.peers.counts["resets"] == 2


@in_world()
async def test_the_history_goes_on_above_what_tier_two_has(w: ReplicaWorld) -> None:
    """An operator had a copy elected that lacks operations which tier 2 has."""
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.kill("c")
    await led.write(b"two", b"three")
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.peers.of("c").refused = False
    for lost in ("a", "b"):
        w.peers.kill(lost)
    led.view.close()
    copy = w.stores["c"].copies._copies[0]
    w.register.isrs[0] = (type(w.register.isrs[0][0])("c", copy.copy_id),)
    w.stores["c"].log.continue_above(0, 3)
    new = Led(await w.open("c", 2, source := ScriptedSource(next_sequence=4)), source)
    assert await new.replayed(3) == []
    await new.write(b"four")
    assert new.durable == [b"four"]
    for lost in ("a", "b"):
        w.peers.of(lost).refused = False
    await w.all_in_sync()
    assert w.stores["a"].history() == w.stores["b"].history() == w.stores["c"].history()
    again = await w.opened_by("b", 3)
    assert await again.replayed(3) == [b"four"]
    with pytest.raises(CorruptJournal):
        await again.replayed(2)


@in_world()
async def test_a_member_that_lacks_what_tier_two_has_is_damaged(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    led.view.close()
    w.stores["a"].log.continue_above(0, 2)
    with pytest.raises(CorruptJournal):
        await w.open("a", 2, ScriptedSource())


@in_world()
async def test_an_idle_log_holds_up_no_old_file(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    await led.view.release(1)
    led.view.unpin()
    await w.settle()
    assert w.stores["a"].history() == []
    await led.write(b"two")
    assert led.durable == [b"one", b"two"]
    assert w.stores["b"].history() == [(1, 1), (1, 2)]
    led.view.unpin()
    await w.settle()
    assert w.stores["a"].history() == [(1, 2)], "tier 2 lacks it"
    again = await w.opened_by("c", 2)
    assert await again.replayed(1) == [b"two"]


@in_world("a", "b", journal_file_size=16384)
async def test_idle_logs_let_the_journal_remove_its_files(w: ReplicaWorld) -> None:
    """Another container writes on; the idle one pins no file, however often files change."""
    idle = await w.opened_by("a")
    await idle.write(b"one")
    await idle.view.release(1)
    log = w.stores["a"].log
    await log.create_log(1, "log-1")
    busy = Led(await log.open_log(1, "log-1", 1, source := ScriptedSource()), source)
    for number in range(1, 60):
        await busy.write(b"x" * 3000)
        await busy.view.release(number)
        log.try_again()
        await w.settle()
    assert len(log.live_files()) <= 2
    await idle.write(b"two")
    assert idle.durable == [b"one", b"two"]
    w.stores["a"].log.close()
    w.stores["a"].restart()
    again = await w.opened_by("a", 2)
    assert await again.replayed(1) == [b"two"]


@in_world()
async def test_a_copy_that_is_not_fed_is_not_proposed(w: ReplicaWorld) -> None:
    """It had synced everything, but before the change could be written its store was wiped."""
    led = await w.opened_by("a")
    w.peers.kill("c")
    await led.write(b"one")
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.register.away = True
    w.peers.of("c").refused = False
    await asyncio.sleep(1)
    w.stores["c"].wipe()
    w.peers.kill("c")
    w.register.away = False
    await asyncio.sleep(1)
    assert w.register.members() == ("a", "b")
