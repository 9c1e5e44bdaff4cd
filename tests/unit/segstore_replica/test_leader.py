"""The leader of a replicated log: what it acknowledges, while stores are slow, lost and back."""

import asyncio
from dataclasses import replace

import pytest

from anabranch.common.errors import Deposed, NotEnoughReplicas, Unavailable
from anabranch.segstore.domain.log.stream.messages import NOTHING
from kit.log_driver import ScriptedSource
from kit.replica_world import LOG_ID, Led, ReplicaWorld, in_world


@in_world()
async def test_a_frame_is_acknowledged_when_every_member_has_synced_it(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.of("c").hold_acks = True
    await led.write(b"one", b"two")
    assert led.durable == []
    w.peers.let_acks_go("c")
    await w.settle()
    assert led.durable == [b"one", b"two"]
    assert w.stores["a"].history() == w.stores["b"].history() == w.stores["c"].history()


@in_world()
async def test_a_lost_member_counts_until_its_removal_is_confirmed(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.register.away = True
    w.peers.kill("c")
    await led.write(b"one")
    await asyncio.sleep(5)
    assert led.durable == []
    w.register.away = False
    await w.until(lambda: led.durable == [b"one"])
    assert w.register.members() == ("a", "b")


@in_world()
async def test_a_member_that_holds_up_a_message_is_removed(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.of("c").silent = True
    began_s = w.loop.time()
    await led.write(b"one")
    await w.until(lambda: led.durable == [b"one"])
    assert 2.0 <= w.loop.time() - began_s <= 2.5
    assert w.register.members() == ("a", "b")
    w.peers.of("c").silent = False
    await w.all_in_sync()
    assert w.peers.counts["resets"] == 2, "a silent store keeps its copy"


@in_world()
async def test_a_member_whose_session_is_over_is_not_waited_for(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.of("c").silent = w.peers.of("c").gone = True
    began_s = w.loop.time()
    await led.write(b"one")
    await w.until(lambda: led.durable == [b"one"])
    assert w.loop.time() - began_s < 0.5


@in_world()
async def test_a_leader_that_was_paused_itself_blames_no_member(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.of("c").hold_acks = True
    await led.write(b"one")
    w.loop.call_later(0.1, w.loop.advance, 10)
    w.loop.call_later(10.3, w.peers.let_acks_go, "c")
    await w.until(lambda: led.durable == [b"one"])
    assert w.register.members() == ("a", "b", "c")


@in_world()
async def test_a_copy_counts_from_the_moment_at_which_it_is_proposed(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.register.late = []
    w.peers.of("c").refused = False
    await w.until(lambda: bool(w.register.late))
    w.peers.of("c").hold_acks = True
    await led.write(b"one")
    assert led.durable == []
    w.register.late[0]()
    assert w.register.members() == ("a", "b", "c")
    w.register.late = None
    w.peers.let_acks_go("c")
    await w.until(lambda: led.durable == [b"one"])


@in_world()
async def test_a_change_whose_answer_is_lost_is_written_again(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.register.lost_answers = 2
    w.peers.kill("b")
    await led.write(b"one")
    await w.until(lambda: led.durable == [b"one"])
    assert w.register.changes[-3:] == [("a", "c")] * 3


@in_world(isr_min=2)
async def test_too_few_members_acknowledge_nothing_and_refuse(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("b")
    w.peers.kill("c")
    await led.write(b"one")
    await w.until(lambda: w.register.members() == ("a",))
    await led.write(b"two")
    assert led.durable == []
    assert isinstance(led.view.refusal, NotEnoughReplicas)
    w.peers.of("b").refused = False
    await w.until(lambda: led.durable == [b"one", b"two"])
    assert led.view.refusal is None
    assert led.view.idle


@in_world(isr_min=2)
async def test_a_frame_that_waits_for_members_is_acknowledged_when_fewer_are_needed(
    w: ReplicaWorld,
) -> None:
    """No other operation follows the frame, so only the placement's change can wake the log."""
    led = await w.opened_by("a")
    w.peers.kill("b")
    w.peers.kill("c")
    await led.write(b"one")
    await w.until(lambda: w.register.members() == ("a",))
    assert led.durable == []
    replicas = await w.register.read(0, 1)
    w.stores["a"].log.replicas_changed(0, 1, replace(replicas, nodes=("a",), isr_min=1))
    await w.settle()
    assert led.durable == [b"one"]
    assert led.view.idle


@in_world()
async def test_a_leader_alone_acknowledges_only_within_its_lease(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("b")
    w.peers.kill("c")
    await w.until(lambda: w.register.members() == ("a",))
    w.stores["a"].has_lease = False
    await led.write(b"one")
    await asyncio.sleep(5)
    assert led.durable == []
    w.stores["a"].has_lease = True
    await asyncio.sleep(0.2)
    assert led.durable == [b"one"]


@in_world()
async def test_a_leader_with_followers_needs_no_lease(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.stores["a"].has_lease = False
    await led.write(b"one")
    assert led.durable == [b"one"]


@in_world()
async def test_an_owner_that_was_replaced_acknowledges_nothing(w: ReplicaWorld) -> None:
    old = await w.opened_by("a")
    await old.write(b"one")
    w.peers.of("b").hold_acks = True
    await old.write(b"two")
    new = await w.opened_by("c", 2)
    w.peers.let_acks_go("b")
    await w.settle()
    assert old.durable == [b"one"]
    assert [type(error) for error in old.source.failures] == [Deposed]
    assert await new.replayed() == [b"one", b"two"]


@in_world()
async def test_an_owner_that_the_register_calls_replaced_ends(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.register.epochs[0] = 2
    w.peers.kill("b")
    await led.write(b"one")
    await asyncio.sleep(3)
    assert led.durable == []
    assert [type(error) for error in led.source.failures] == [Deposed]


@in_world()
async def test_an_owner_whose_placement_has_a_higher_epoch_ends(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    replicas = await w.register.read(0, 1)
    w.stores["a"].log.replicas_changed(0, 0, replicas)
    assert not led.view.ended
    w.stores["a"].log.replicas_changed(0, 2, replicas)
    await led.write(b"one")
    assert led.durable == []
    assert [type(error) for error in led.source.failures] == [Deposed]


@in_world()
async def test_a_promise_of_the_own_store_ends_the_owner(w: ReplicaWorld) -> None:
    """The controller asks all members before an election, the former owner's store included."""
    led = await w.opened_by("a")
    await w.stores["a"].copies.promise(0, LOG_ID, 2, None)
    await led.write(b"one")
    assert led.durable == []
    assert [type(error) for error in led.source.failures] == [Deposed]
    assert led.source.journal_failures == []


@in_world()
async def test_a_failure_of_the_own_journal_ends_the_store(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.stores["a"].frames.owner += 1
    await led.write(b"one")
    assert led.durable == []
    assert len(led.source.journal_failures) == 1
    assert w.stores["a"].log.failure is not None


@in_world()
async def test_a_follower_catches_up_while_writes_continue(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await w.until(lambda: w.register.members() == ("a", "b"))
    await led.write(*[b"%03d" % number for number in range(200)])
    assert len(led.durable) == 200
    w.peers.of("c").refused = False
    number = 200
    while w.register.members() != ("a", "b", "c"):
        await led.write(b"%03d" % number)
        number += 1
        assert number < 500
    assert w.stores["c"].history() == w.stores["a"].history()
    assert w.peers.counts["resets"] == 2, "it continues where it was"


@in_world()
async def test_a_follower_outside_the_isr_gets_no_more_than_a_window(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.peers.of("c").hold_acks, w.peers.of("c").refused = True, False
    await led.write(*[b"%03d" % number for number in range(100)])
    assert len(led.durable) == 100, "others do not wait for it"
    assert len(w.stores["c"].history()) <= 64 + 1
    w.peers.let_acks_go("c")
    await w.all_in_sync()
    assert w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_a_release_waits_for_a_follower_that_catches_up(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await led.write(*[b"%03d" % number for number in range(100)])
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.peers.of("c").hold_acks, w.peers.of("c").refused = True, False
    await asyncio.sleep(0.5)
    await led.view.release(100)
    assert len(w.stores["a"].history()) > 1
    w.peers.let_acks_go("c")
    await w.all_in_sync()
    await w.settle()
    assert len(w.stores["a"].history()) == 1, "the last message stays"
    assert w.peers.counts["resets"] == 2


@in_world()
async def test_a_release_does_not_wait_for_a_slow_follower_for_ever(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await led.write(*[b"%03d" % number for number in range(100)])
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.peers.of("c").hold_acks, w.peers.of("c").refused = True, False
    w.peers.of("c").way_s = 0.001
    await asyncio.sleep(0.5)
    await led.view.release(100)
    w.loop.advance(w.pace.hold_s + 1)
    await led.view.release(100)
    assert len(w.stores["a"].history()) == 1
    w.peers.let_acks_go("c")
    await w.all_in_sync()
    assert w.peers.counts["resets"] == 3
    assert w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_messages_may_be_released_while_a_copy_is_reset(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.peers.kill("c")
    await led.write(b"one", b"two")
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.stores["c"].wipe()
    w.peers.of("c").way_s, w.peers.of("c").refused = 0.5, False
    await w.until(lambda: w.peers.counts["resets"] == 3)
    await led.view.release(2)
    await led.write(b"three")
    await w.all_in_sync()
    assert w.peers.counts["resets"] == 4
    assert w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_a_follower_hears_of_releases_when_it_comes_back(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one", b"two")
    w.peers.kill("c")
    await w.until(lambda: w.register.members() == ("a", "b"))
    await led.view.release(2)
    w.peers.of("c").refused = False
    await w.all_in_sync()
    await w.settle()
    assert w.stores["c"].history() == w.stores["a"].history() == [(1, 2)]


@in_world()
async def test_a_frame_that_is_not_acknowledged_is_not_replayed(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.peers.of("c").hold_acks = True
    await led.write(b"two")
    assert await led.replayed() == [b"one"]


@in_world()
async def test_a_follower_may_ask_for_a_flush(w: ReplicaWorld) -> None:
    await w.opened_by("a")
    link = next(link for link in w.peers.links if link.node_id == "b")
    link.flush_wanted(0, 1)
    await w.settle()
    assert w.stores["a"].flushes_wanted == [0]


@in_world()
async def test_followers_release_what_the_leader_releases(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one", b"two", b"three")
    await led.view.release(2)
    await w.settle()
    for store in w.stores.values():
        assert store.history() == [(1, 3)]
    assert await led.replayed(2) == [b"three"]


@in_world()
async def test_a_store_that_is_no_replica_any_more_leaves_the_isr(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    w.register.nodes = ("a", "b")
    w.stores["a"].log.replicas_changed(0, 1, await w.register.read(0, 1))
    await w.until(lambda: w.register.members() == ("a", "b"))
    w.peers.of("c").hold_acks = True
    await led.write(b"one")
    assert led.durable == [b"one"]
    assert {link.node_id for link in w.peers.links} == {"b"}


@in_world("a", "b")
async def test_a_store_that_becomes_a_replica_joins_the_isr(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"one")
    w.add_store("c")
    w.register.nodes = ("a", "b", "c")
    w.stores["a"].log.replicas_changed(0, 1, await w.register.read(0, 1))
    await w.all_in_sync()
    assert w.stores["c"].history() == w.stores["a"].history()


@in_world()
async def test_a_closed_view_feeds_no_follower(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    led.view.close()
    await w.settle()
    assert w.peers.links == []
    assert not w.tasks
    await led.write(b"one")
    assert led.source.taken == {}
    assert led.source.failures == []


@in_world()
async def test_the_lag_of_a_follower_is_told_in_bytes_and_time(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    await led.write(b"y" * 500)
    w.peers.of("c").hold_acks = True
    await led.write(b"x" * 1000)
    await asyncio.sleep(1)
    facts = w.stores["a"].log.describe(0)
    assert facts is not None
    lags = {one.node_id: one for one in facts.followers}
    assert (lags["b"].lag_bytes, lags["b"].lag_ms, lags["b"].in_sync) == (0, 0, True)
    assert lags["c"].lag_bytes == 1000
    assert 1000 <= lags["c"].lag_ms < 1100
    w.peers.kill("c")
    await w.until(lambda: len(led.durable) == 2)
    facts = w.stores["a"].log.describe(0)
    assert facts is not None
    lost = {one.node_id: one for one in facts.followers}["c"]
    assert (lost.connected, lost.in_sync) == (False, False)
    assert lost.lag_bytes == 1000


@in_world()
async def test_a_log_whose_leader_is_elsewhere_is_not_described(w: ReplicaWorld) -> None:
    await w.opened_by("a")
    assert w.stores["b"].log.describe(0) is None


@in_world("a")
async def test_a_large_frame_does_not_wait_for_the_sync_of_the_one_before(
    w: ReplicaWorld,
) -> None:
    led = await w.opened_by("a")
    large = b"x" * (2 * 1024 * 1024)
    for payload in (large, large, b"small", b"next"):
        led.source.put(payload)
    led.view.ready()
    await asyncio.sleep(0)
    assert list(led.source.taken) == [1, 2, 3]
    await w.settle()
    assert len(led.durable) == 4


@in_world()
async def test_a_frame_of_many_pieces_arrives_whole(w: ReplicaWorld) -> None:
    led = await w.opened_by("a")
    contents = led.source.put(b"")
    led.source.waiting[0] = type(contents)(1, 1, [b"%03d" % n for n in range(500)], 1500)
    led.view.ready()
    await w.settle()
    assert led.durable == [b"".join(b"%03d" % n for n in range(500))]
    assert await led.view.read_aside(led.source.addresses[1]) == led.durable[0]


@in_world()
async def test_a_store_finds_the_logs_of_which_it_has_a_copy(w: ReplicaWorld) -> None:
    found = await w.stores["a"].log.find_log(0, LOG_ID)
    assert (found.listed, found.listing) == (None, False)
    copy = await w.stores["a"].copies.create(0, LOG_ID, 0, NOTHING)
    found = await w.stores["a"].log.find_log(0, LOG_ID)
    assert (found.listed, found.listing) == (copy.log_id, False)


@in_world()
async def test_an_open_that_the_register_does_not_answer_fails(w: ReplicaWorld) -> None:
    await w.stores["a"].log.create_log(0, LOG_ID)
    w.register.away = True
    with pytest.raises(Unavailable):
        await w.stores["a"].log.open_log(0, LOG_ID, 1, ScriptedSource())
    w.register.away = False
    assert isinstance(await w.opened_by("a", 2), Led)
