"""The counts behind `make append-costs`."""

import asyncio
import json

from bench.append_costs import Sides, calls_of, per_append, table
from bench.append_counts import CountingLoop, Counts

TRACE = """\
71 epoll_pwait(3, [{events=EPOLLIN}], 1024, -1, NULL, 8) = 1
71 read(27, ""..., 256000) = 1183
71 pwritev2(22, [{iov_base=""..., iov_len=48}], 1, 5, RWF_DSYNC) = 1216
71 newfstatat(AT_FDCWD, "x", 0x7ffd, 0) = -1 ENOENT (No such file or directory)
72 futex(0x7f, FUTEX_WAIT <unfinished ...>
71 read(27, "", 256000) = 17
71 read(27, 0x7f, 256000) = -1 EAGAIN (Resource temporarily unavailable)
""".splitlines()


def test_system_calls_are_counted_by_name_with_the_bytes_that_they_moved() -> None:
    assert calls_of(TRACE) == {
        "epoll_pwait()": 1,
        "turns of the loop": 1,
        "read()": 3,
        "bytes of read()": 1200,
        "pwritev2()": 1,
        "bytes of pwritev2()": 1216,
        "newfstatat()": 1,
    }


def test_a_line_of_the_table_shows_both_sides_unless_both_are_next_to_nothing() -> None:
    client, store = {"futures": 1.0, "tasks": 0.01}, {"read()": 2.0}
    assert table(Sides(client, store))[2:] == ["| futures | 1.0 | 0.0 |", "| read() | 0.0 | 2.0 |"]


def test_counts_are_divided_by_the_appends() -> None:
    assert per_append({"tasks": 3, "handles": 8}, 2) == {"handles": 4.0, "tasks": 1.5}


def test_a_loop_counts_only_between_start_and_stop_what_it_is_asked_to_make() -> None:
    counts = Counts()

    async def count() -> dict[str, int]:
        loop = asyncio.get_running_loop()
        loop.create_future()
        counts.start()
        loop.create_future().set_result(None)
        loop.call_soon(int)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.0))
        json.dumps({})
        return counts.stop()

    with asyncio.Runner(loop_factory=lambda: CountingLoop(counts)) as runner:
        found = runner.run(count())
        assert found["tasks"] == 1
        assert found["futures"] >= 1
        assert found["handles"] >= 2
        assert found["calls of Python"] > 0
        assert found["calls of C"] > 0
        assert counts.stop() == found
