"""Which systems under which settings, and which workloads, a run can choose from."""

from collections.abc import Iterator, Sequence

from anabranch.common.errors import InvalidRequest
from bench.case import MIB, Effort
from bench.systems.anabranch import (
    APART,
    NOT_FLUSHING,
    Anabranch,
    AnabranchApart,
    flushing,
    shared_logs,
    stores,
)
from bench.systems.arrow import ready_files
from bench.systems.disk import Disk
from bench.systems.echo import Echo
from bench.systems.jetstream import JetStream
from bench.systems.kafka.setup import KafkaPrograms
from bench.systems.kafka.system import LABELS, REPLICATED_LABELS, Kafka, KafkaApart
from bench.systems.port import Label, System
from bench.systems.redis import Redis
from bench.workloads.port import Workload
from bench.workloads.w1_max_write import MaxWrite
from bench.workloads.w1_steady import SteadyWrite
from bench.workloads.w2_keys import KeyedWrite
from bench.workloads.w3_busy import BusyAwaited
from bench.workloads.w3_one_awaited import OneAwaited
from bench.workloads.w4_many_awaiting import ManyAwaiting
from bench.workloads.w5_half_load import HalfLoad
from bench.workloads.w6_tail import Tail
from bench.workloads.w7_catch_up import PLACES, BesideCatchUp, CatchUp
from bench.workloads.w8_open import OpenTransactions
from bench.workloads.w8_transactions import Transactions, TransactionsOverSegments
from bench.workloads.w10_many_segments import IdleSegments, SpreadSegments
from bench.workloads.w11_open import OpenAfterKill
from bench.workloads.w12_gateway import DirectWriters, GatewayGet, GatewayPost
from bench.workloads.w13_audit import SparkAudit
from bench.workloads.w13_follow import SparkFollow
from bench.workloads.w13_spark import SegmentsRead, SparkRead
from bench.workloads.w13_spark_sink import SparkWrite
from bench.workloads.w14_control import HeavyOperations, LightOperations
from bench.workloads.w15_scale import ScaleUnderLoad
from bench.workloads.w16_start import ControllerStart
from bench.workloads.w17_client_cpu import ReadCost, WriteCost
from bench.workloads.w18_group_tail import GroupTail
from bench.workloads.w19_rebalance import Rebalance
from bench.workloads.w20_conditional_put import DistinctKeys, SharedKeys
from bench.workloads.w21_table_bulk import GetHot, GetMany, PutMany, ScanAll, ScanArrow
from bench.workloads.w22_table_restart import TableRestart
from bench.workloads.w23_shared_log import SharedLog, SharedLogAwaited
from bench.workloads.w24_fail_over import FailOver
from bench.workloads.w25_replicated import REPLICATION, Replicated, ReplicatedAwaited
from bench.workloads.w27_topics import TopicCreation
from bench.workloads.w28_topic_throughput import TopicThroughput

FLUSH_OFF = "flush off"
BLOCK_BYTES = 256 * 1024
"""What the client sends as one block."""
WINDOW_BYTES = 8 * BLOCK_BYTES
"""What the client may have in flight, so at most what one writer gives the journal at once."""

RIVALS = frozenset({"jetstream", "redis"})
ONE_BY_ONE = frozenset({"jetstream"})
"""Systems whose client reads entries of a table one by one."""


LOGS_ON_THREE = shared_logs(nats_servers=3, stores=3, controllers=2)


KAFKA_LABELS: Sequence[Label] = (*LABELS, *REPLICATED_LABELS)
"""What `systems` adds if it is given the programs of Kafka."""
APARTS = frozenset({APART, *(label.settings for label in REPLICATED_LABELS)})
"""The settings of systems that only start what a workload asks for."""


def systems(effort: Effort, kafka: KafkaPrograms | None = None) -> list[System]:
    """All systems, in the order of the first round; those of Kafka if there are its programs."""
    file_bytes = effort.bytes_max + 16 * MIB
    return [
        Anabranch(FLUSH_OFF, NOT_FLUSHING),
        Anabranch("flush on", flushing(effort.flush_bytes)),
        JetStream(synced=False),
        JetStream(synced=True),
        Redis(synced=False),
        Redis(synced=True),
        *_single_brokers(kafka),
        Disk(BLOCK_BYTES, file_bytes),
        Disk(WINDOW_BYTES, file_bytes),
        Echo(),
        *ready_files(),
        AnabranchApart(),
        *_brokers_apart(kafka),
    ]


def _single_brokers(kafka: KafkaPrograms | None) -> list[Kafka]:
    return [Kafka(kafka, synced=synced) for synced in (False, True)] if kafka else []


def _brokers_apart(kafka: KafkaPrograms | None) -> list[KafkaApart]:
    return [KafkaApart(kafka, synced=synced) for synced in (False, True)] if kafka else []


def in_spark(left_out: frozenset[str]) -> tuple[Workload, ...]:
    """The workloads of Spark, each with a session of its own."""
    return (
        SparkRead("W13 tier 2", "tier2", left_out, ("anabranch", "arrow", "parquet")),
        SparkRead("W13 stores", "stores", left_out),
        SegmentsRead("W13 segments, tier 2", "tier2", left_out),
        SegmentsRead("W13 segments, stores", "stores", left_out),
        SparkFollow(left_out),
        SparkWrite(left_out),
        SparkAudit(left_out),
    )


def transactions(left_out: frozenset[str]) -> Iterator[Workload]:
    """Transactions that are awaited, over one segment and over several."""
    for callers in (1, 16):
        yield Transactions(callers, left_out)
        for together in (True, False):
            yield TransactionsOverSegments(callers, left_out, together=together)


def workloads(names: Sequence[str]) -> list[Workload]:
    """The named workloads in the order given; most have parts. Raises InvalidRequest."""
    once = frozenset({FLUSH_OFF, *APARTS, Disk(WINDOW_BYTES, 0).label.settings})
    over_http: tuple[Workload, ...] = (GatewayPost(once), GatewayGet(once), DirectWriters(once))
    known: dict[str, tuple[Workload, ...]] = {
        "W1": (MaxWrite(APARTS), SteadyWrite()),
        "W3": (OneAwaited(once), BusyAwaited(once)),
        "W2": (KeyedWrite(),),
        "W4": (ManyAwaiting(once),),
        "W5": (HalfLoad(),),
        "W6": (Tail(once),),
        "W7": tuple(workload(place) for place in PLACES for workload in (CatchUp, BesideCatchUp)),
        "W8": (*transactions(once), OpenTransactions(FLUSH_OFF)),
        "W10": (IdleSegments(), SpreadSegments()),
        "W11": (OpenAfterKill(),),
        "W12": over_http,
        "W13": in_spark(once),
        "W14": (LightOperations(FLUSH_OFF), HeavyOperations(FLUSH_OFF)),
        "W15": (ScaleUnderLoad(FLUSH_OFF),),
        "W16": (ControllerStart(FLUSH_OFF),),
        "W17": (
            WriteCost("write_batch", FLUSH_OFF),
            WriteCost("write", FLUSH_OFF),
            ReadCost("arrow", frozenset({FLUSH_OFF})),
            ReadCost("batches", frozenset({FLUSH_OFF})),
            ReadCost("async for", frozenset({FLUSH_OFF, "default", "everysec"})),
        ),
        "W18": (GroupTail(FLUSH_OFF),),
        "W19": (Rebalance(FLUSH_OFF),),
        "W20": (DistinctKeys(once), SharedKeys(once)),
        "W21": (
            PutMany(once),
            GetHot(once),
            GetMany(once, ONE_BY_ONE),
            ScanAll(once, ONE_BY_ONE),
            ScanArrow(once, RIVALS),
        ),
        "W22": (TableRestart(),),
        "W23": tuple(
            make(replicas) for replicas in (1, 3) for make in (SharedLog, SharedLogAwaited)
        ),
        "W24": (
            FailOver("W24 store", LOGS_ON_THREE),
            FailOver("W24 store and NATS", LOGS_ON_THREE, with_nats=True),
        ),
        "W25": (Replicated(), ReplicatedAwaited()),
        "W26": (FailOver("W26", stores(3, REPLICATION, controllers=2)),),
        "W27": (TopicCreation(),),
        "W28": tuple(
            TopicThroughput(frozenset({FLUSH_OFF}), keyed=keyed) for keyed in (False, True)
        ),
    }
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InvalidRequest("no such workload", asked=",".join(unknown), known=",".join(known))
    return [workload for name in names for workload in known[name]]
