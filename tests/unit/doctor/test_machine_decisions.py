"""The verdicts about versions, disks, clocks and limits, each from facts that were made up."""

from dataclasses import replace

import pytest

from anabranch.cli.doctor.decisions import clocks, disks, limits, versions
from anabranch.cli.doctor.decisions.clocks import ClockStatus
from anabranch.cli.doctor.decisions.disks import Disk, SyncTimes
from anabranch.cli.doctor.decisions.limits import Limits
from anabranch.cli.doctor.decisions.services import Service
from anabranch.cli.doctor.decisions.versions import Packages, Requirement
from anabranch.cli.doctor.finding import Finding, Verdict
from anabranch.cli.doctor.sources.clock import http_date_bound
from anabranch.cli.up import binaries
from anabranch.common.eventsourcing.store_clock import Bound

OK, WARNING, FAILURE, SKIPPED = Verdict.OK, Verdict.WARNING, Verdict.FAILURE, Verdict.SKIPPED
GIB = 1024**3
DISK = Disk("/data", 100 * GIB, 50 * GIB, 1000, 900, "ext4", read_only=False, writable=True)
LIMITS = Limits(1024, 20_000, 16 * GIB, 8 * GIB, None, 4.0, (32768, 60999))
FITS = Requirement("anabranch-common", "nats-py>=2.14", "nats-py", "2.16.0", satisfied=True)
PACKAGES = Packages((3, 11, 7), {"anabranch-cli": "1.0", "anabranch-common": "1.0"}, (FITS,))


def has(finding: Finding, verdict: Verdict, *words: str) -> bool:
    """Whether it is this verdict with these words, and with a remedy if one is needed."""
    helped = bool(finding.remedy) == (verdict in (WARNING, FAILURE))
    return finding.verdict is verdict and helped and all(word in finding.text for word in words)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((3, 10, 9), FAILURE), ((3, 11, 0), OK), ((3, 12, 9), OK), ((3, 13, 0), FAILURE)],
)
def test_python_must_be_one_that_the_parts_support(
    version: tuple[int, int, int], verdict: Verdict
) -> None:
    assert has(versions.python(replace(PACKAGES, python=version)), verdict)


def test_parts_of_one_release_are_right_and_of_several_are_not() -> None:
    assert has(versions.parts(PACKAGES), OK, "release 1.0: cli, common")
    mixed = replace(PACKAGES, parts={"anabranch-cli": "1.0", "anabranch-common": "1.1"})
    assert has(versions.parts(mixed), FAILURE, "anabranch-cli 1.0", "anabranch-common 1.1")


def test_a_library_that_is_too_old_or_missing_is_named_with_what_is_needed() -> None:
    assert has(versions.libraries(PACKAGES), OK, "nats-py 2.16.0")
    old = replace(FITS, installed="2.1", satisfied=False)
    none = replace(FITS, name="mmh3", text="mmh3>=5", installed=None, satisfied=False)
    finding = versions.libraries(replace(PACKAGES, requirements=(old, none)))
    assert has(finding, FAILURE, "needs nats-py>=2.14, found 2.1", "mmh3>=5, found none")


@pytest.mark.parametrize(
    ("release", "verdict"), [("2.11.9", FAILURE), ("2.12.0", OK), ("2.15.1", OK), ("x", WARNING)]
)
def test_the_nats_server_must_be_new_enough(release: str, verdict: Verdict) -> None:
    assert has(versions.nats_server(release), verdict)


@pytest.mark.parametrize(
    ("info", "verdict"),
    [
        ({"redis_version": "6.0.16"}, FAILURE),
        ({"redis_version": "6.2.14"}, OK),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, OK),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, FAILURE),
        ({}, WARNING),
    ],
)
def test_redis_and_valkey_must_be_new_enough(info: dict[str, str], verdict: Verdict) -> None:
    assert has(versions.redis_server(info), verdict)


def test_the_needed_versions_are_those_that_the_embedded_cluster_asks_for() -> None:
    assert (
        binaries.NATS.version_min,
        binaries.REDIS.version_min,
    ) == (versions.NATS_MIN, versions.REDIS_MIN)


def test_services_of_another_release_are_named() -> None:
    same, silent = Service("gateway", release="1.0"), Service("store")
    assert has(versions.services("1.0", [same, silent]), OK, "release 1.0: gateway")
    other = Service("controller", release="0.9")
    assert has(versions.services("1.0", [same, other]), WARNING, "controller 0.9")
    assert has(versions.services("1.0", [silent]), SKIPPED)


@pytest.mark.parametrize(
    ("free_bytes", "verdict"),
    [(50 * GIB, OK), (5 * GIB, WARNING), (GIB, WARNING), (100 * 1024**2, FAILURE)],
)
def test_free_space_is_judged_by_what_journals_may_take_and_by_its_share(
    free_bytes: int, verdict: Verdict
) -> None:
    assert has(disks.space(replace(DISK, free_bytes=free_bytes)), verdict)


def test_each_store_of_the_directory_needs_room_for_its_journal() -> None:
    assert disks.journal_need_bytes(DISK) == GIB * 5 // 4
    three = replace(DISK, store_count=3, journal_bytes=GIB)
    assert disks.journal_need_bytes(three) == 3 * GIB * 5 // 4 - GIB
    small = replace(DISK, total_bytes=4 * GIB, free_bytes=2 * GIB)
    assert has(disks.space(small), OK)
    assert has(disks.space(replace(small, store_count=3)), WARNING, "journals may take 3.75 GiB")


def test_few_free_inodes_are_a_warning_and_some_file_systems_have_no_number() -> None:
    assert has(disks.inodes(DISK), OK)
    assert has(disks.inodes(replace(DISK, inodes_free=50)), WARNING, "5%")
    assert has(disks.inodes(replace(DISK, inodes=0, inodes_free=0)), OK)


def test_a_directory_must_be_writable() -> None:
    assert has(disks.writable(DISK), OK)
    assert has(disks.writable(replace(DISK, writable=False)), FAILURE, "/data is not writable")
    assert has(disks.writable(replace(DISK, read_only=True)), FAILURE, "read-only")


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("ext4", OK), ("xfs", OK), ("tmpfs", WARNING), ("overlay", WARNING), ("nfs4", WARNING)],
)
def test_file_systems_that_forget_or_are_elsewhere_are_a_warning(
    kind: str, verdict: Verdict
) -> None:
    assert has(disks.file_system(replace(DISK, file_system=kind)), verdict, kind)


@pytest.mark.parametrize(
    ("took_ms", "verdict", "words"),
    [
        ((0.2,) * 50, OK, "fast disk"),
        ((3.0,) * 50, OK, "3 ms (p50)"),
        ((25.0,) * 50, WARNING, "25 ms (p50)"),
        ((1.0,) * 49 + (300.0,), WARNING, "300 ms (p99)"),
        ((0.5,), OK, "1 synced write of"),
    ],
)
def test_syncs_are_judged_by_their_median_and_by_the_slowest(
    took_ms: tuple[float, ...], verdict: Verdict, words: str
) -> None:
    assert has(disks.sync(SyncTimes(took_ms)), verdict, words)


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "verdict", "words"),
    [
        (-1, 2, OK, "agrees with the server's within 1.5 ms"),
        (20, 24, OK, "22 ms behind the server's (± 2 ms)"),
        (-24, -20, OK, "22 ms ahead of"),
        (1_100, 1_200, FAILURE, "1.15 s behind"),
        (-1_200, -1_100, FAILURE, "1.15 s ahead"),
        (900, 1_200, WARNING, "may exceed a second"),
        (-500, 500, OK, "within 500 ms"),
        (-600, 1_402, OK, "within 1 s"),
        (600, 1_300, WARNING, "may exceed a second"),
    ],
)
def test_a_clock_may_be_off_by_a_second_and_the_precision_is_told(
    low_ms: int, high_ms: int, verdict: Verdict, words: str
) -> None:
    assert has(clocks.offset("server", Bound(low_ms, high_ms)), verdict, words)


def test_a_clock_that_nothing_keeps_right_is_a_warning() -> None:
    assert has(clocks.synchronised(ClockStatus(True, 12.0)), OK, "12 ms")
    assert has(clocks.synchronised(ClockStatus(False, 0.0)), WARNING)
    assert has(clocks.synchronised(None), SKIPPED)


@pytest.mark.parametrize(
    ("hard", "verdict"), [(None, OK), (20_000, OK), (2_048, WARNING), (512, FAILURE)]
)
def test_the_hard_limit_of_files_counts(hard: int | None, verdict: Verdict) -> None:
    assert has(limits.open_files(replace(LIMITS, files_hard=hard)), verdict)


def test_memory_is_that_of_the_control_group_if_it_is_less() -> None:
    assert has(limits.memory(LIMITS), OK, "8 GiB of the machine's 16 GiB")
    group = replace(LIMITS, memory_limit_bytes=GIB // 2)
    assert has(limits.memory(group), WARNING, "the control group allows 512 MiB")
    assert has(limits.memory(replace(LIMITS, memory_limit_bytes=64 * GIB)), OK)
    assert has(limits.memory(replace(LIMITS, memory_free_bytes=GIB // 8)), WARNING)


def test_less_than_two_processors_and_few_ports_are_warnings() -> None:
    assert has(limits.processors(LIMITS), OK, "4 processors")
    assert has(limits.processors(replace(LIMITS, processors=1.0)), WARNING, "1 processor:")
    assert has(limits.processors(replace(LIMITS, processors=2.5)), OK, "2.5 processors")
    assert has(limits.ports(LIMITS), OK, "28,232")
    assert has(limits.ports(replace(LIMITS, ports=(60_000, 60_999))), WARNING)
    assert has(limits.ports(replace(LIMITS, ports=None)), OK)


def test_a_virtual_machine_whose_idle_processors_halt_at_once_is_noted() -> None:
    assert has(limits.halting(LIMITS), OK)
    assert has(limits.halting(replace(LIMITS, poll_ns=200_000)), OK, "0.2 ms")
    noted = limits.halting(replace(LIMITS, poll_ns=0))
    assert noted.verdict is Verdict.NOTE
    assert limits.POLL_FILE in str(noted.remedy)


@pytest.mark.parametrize("late_ms", [0, 999, 1_000, 1_999])
def test_a_date_of_whole_seconds_that_is_renewed_once_a_second_is_no_difference(
    late_ms: int,
) -> None:
    date, sent_ms = "Mon, 23 Nov 2026 09:10:29 GMT", 1_795_425_029_000 + late_ms
    bound = http_date_bound(date, sent_ms, sent_ms + 40)
    assert has(clocks.offset("gateway", bound), OK, "within 1.02 s")
