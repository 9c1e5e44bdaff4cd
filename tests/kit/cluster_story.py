"""A cluster's objects in a text scenario: lines change the world, a pass runs all reducers once.

    spu NAME id=1 [rack=a] [type=custom]         registers an SPU; its store is not up yet
    up NAME…, down NAME…                         its store lives, or is dead
    home NAME jetstream                          where its store keeps logs; replicated if not said
    delete_spu NAME                              a deletion was asked for
    group NAME replicas=2 min_id=1 [rack=a]      creates an SPU group
    scale NAME replicas=3, delete_group NAME
    holds NAME…, holds_nothing NAME…             whether a store holds replicas
    topic NAME partitions=2 rf=1 [racks=ignored] [retention=7] [dedup=0]
    topic NAME rows=0:1+2,1:2+1                  with an assignment by the user
    grow NAME partitions=4, delete_topic NAME
    stream NAME active [partitions=2]            what the mirror knows of the backing stream
    open C…                                      the container opens on its stores, all in sync
    place C state=electing [owner=a] [isr=a+b] [replicas=a+b]
    full NAME…, not_full NAME…                   whether a store is out of storage
    wait_ms 60000
    pass, or settle: passes until nothing is due, at most ten; reconcile: a full pass

A line that begins with ``>`` is an action of a pass, one with ``=`` an object as it then is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.common.contracts.objects import Doomed, ObjectKind, TopicContainers
from anabranch.common.model.cluster import REPLICATED, LogCopy, Placement, PlacementState
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    ClusterObject,
    Computed,
    Deduplication,
    Partition,
    PartitionSpec,
    PartitionStatus,
    Spu,
    SpuGroup,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    SpuType,
    Topic,
    TopicSpec,
    TopicStatus,
)
from anabranch.controller.domain.cluster.objects import dooming, groups, partitions, spus, topics
from anabranch.controller.domain.cluster.objects.actions import (
    Action,
)
from anabranch.controller.domain.cluster.objects.backing import (
    BackingCommand,
    BackingState,
    CreateBacking,
    GrowBacking,
    StreamView,
)
from anabranch.controller.domain.cluster.objects.topic_containers import nodes_by_container

PASSES_MAX = 10


class ClusterStory:
    """The world of one scenario."""

    def __init__(self) -> None:
        self.spus: dict[str, Spu] = {}
        self.groups: dict[str, SpuGroup] = {}
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[str, Partition] = {}
        self.containers = TopicContainers()
        self.placements: dict[int, Placement] = {}
        self.streams: dict[str, StreamView] = {}
        self.doomed: dict[str, Doomed] = {}
        self.live: dict[str, bool] = {}
        self.log_homes: dict[str, str] = {}
        self.drained: set[str] = set()
        self.holding: set[str] = set()
        self.full: set[str] = set()
        self.asked: set[BackingCommand] = set()
        self.revision = 0
        self.now_ms = 0

    def perform(self, line: str) -> list[str]:
        """What comes of a line."""
        verb, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if verb in ("pass", "reconcile"):
            return self._pass(is_full=verb == "reconcile")
        if verb == "settle":
            return self._settle()
        verbs: Mapping[str, Callable[[], None]] = {
            "up": lambda: self.live.update(dict.fromkeys(plain, True)),
            "down": lambda: self.live.update(dict.fromkeys(plain, False)),
            "home": lambda: self.log_homes.update({plain[0]: plain[1]}),
            "holds": lambda: self.holding.update(plain),
            "holds_nothing": lambda: self.holding.difference_update(plain),
            "full": lambda: self.full.update(plain),
            "not_full": lambda: self.full.difference_update(plain),
            "open": lambda: self._open(plain),
            "place": lambda: self._place(int(plain[0]), named),
            "stream": lambda: self._stream(plain[0], plain[1], named),
            "wait_ms": lambda: self._wait(int(plain[0])),
            "spu": lambda: self._spu(plain[0], named),
            "group": lambda: self._group(plain[0], named),
            "topic": lambda: self._topic(plain[0], named),
            "scale": lambda: self._scale(plain[0], int(named["replicas"])),
            "grow": lambda: self._grow(plain[0], int(named["partitions"])),
            "delete_spu": lambda: self._mark(self.spus, plain[0]),
            "delete_group": lambda: self._mark(self.groups, plain[0]),
            "delete_topic": lambda: self._mark(self.topics, plain[0]),
        }
        verbs[verb]()
        return []

    # --- what users and stores do ----------------------------------------------------------

    def _spu(self, name: str, named: Mapping[str, str]) -> None:
        spec = SpuSpec(
            int(named["id"]), SpuType(named.get("type", "custom")), rack=named.get("rack", "")
        )
        self.spus[name] = ClusterObject(name, spec, SpuStatus(), revision=self._next_revision())

    def _group(self, name: str, named: Mapping[str, str]) -> None:
        spec = SpuGroupSpec(int(named["replicas"]), int(named["min_id"]), named.get("rack", ""))
        self.groups[name] = ClusterObject(
            name, spec, SpuGroupStatus(), revision=self._next_revision()
        )

    def _scale(self, name: str, replicas: int) -> None:
        found = self.groups[name]
        spec = replace(found.spec, replicas=replicas)
        self.groups[name] = replace(found, spec=spec, revision=self._next_revision())

    def _topic(self, name: str, named: Mapping[str, str]) -> None:
        if "rows" in named:
            pairs = [row.split(":") for row in named["rows"].split(",") if row]
            replicas: Assigned | Computed = Assigned(
                tuple(
                    AssignedPartition(int(index), tuple(map(int, filter(None, ids.split("+")))))
                    for index, ids in pairs
                )
            )
        else:
            replicas = Computed(
                int(named.get("partitions", 1)), int(named.get("rf", 1)), "racks" in named
            )
        spec = TopicSpec(replicas, int(named.get("retention", 604_800)))
        if "dedup" in named:
            spec = replace(spec, deduplication=Deduplication(int(named["dedup"])))
        revision = self._next_revision()
        incarnation = f"{revision:012x}"
        self.topics[name] = ClusterObject(
            name, spec, TopicStatus(), incarnation=incarnation, revision=revision
        )

    def _grow(self, name: str, count: int) -> None:
        found = self.topics[name]
        assert isinstance(found.spec.replicas, Computed)
        spec = replace(found.spec, replicas=replace(found.spec.replicas, partitions=count))
        self.topics[name] = replace(found, spec=spec, revision=self._next_revision())

    def _mark(self, found: dict[str, Any], name: str) -> None:
        found[name] = replace(found[name], deleting=True, revision=self._next_revision())

    def _open(self, plain: Sequence[str]) -> None:
        nodes = nodes_by_container(self.containers)
        for word in plain:
            number = int(word)
            before = self.placements.get(number, Placement(number, nodes[number]))
            isr = tuple(LogCopy(node, "c") for node in before.replicas)
            self.placements[number] = replace(
                before,
                state=PlacementState.OPEN,
                container_epoch=before.container_epoch + 1,
                log_id="log",
                log_home=REPLICATED,
                isr=isr,
            )

    def _place(self, container: int, named: Mapping[str, str]) -> None:
        found = self.placements[container]
        nodes = tuple(named["replicas"].split("+")) if "replicas" in named else found.replicas
        owner = named.get("owner", nodes[0])
        nodes = (owner, *(node for node in nodes if node != owner))
        isr = found.isr
        if "isr" in named:
            isr = tuple(LogCopy(node, "c") for node in named["isr"].split("+"))
        state = PlacementState(named.get("state", found.state))
        self.placements[container] = replace(found, replicas=nodes, isr=isr, state=state)

    def _stream(self, topic: str, state: str, named: Mapping[str, str]) -> None:
        found = self.topics.get(topic)
        incarnation = (
            found.incarnation
            if found
            else next(key for key, doom in self.doomed.items() if doom.topic == topic)
        )
        before = self.streams.get(incarnation, StreamView())
        count = int(named.get("partitions", before.partitions))
        self.streams[incarnation] = StreamView(BackingState(state), count)

    def _wait(self, ms: int) -> None:
        self.now_ms += ms

    def _next_revision(self) -> int:
        self.revision += 1
        return self.revision

    # --- what the reducers do --------------------------------------------------------------

    def _settle(self) -> list[str]:
        told: list[str] = []
        for _ in range(PASSES_MAX):
            came = self._pass()
            if not came:
                return told
            told += came
        raise AssertionError("\n".join(("the reducers do not come to rest", *told)))

    def _pass(self, *, is_full: bool = False) -> list[str]:
        """All reducers upon the same world, then all their changes."""
        doomed = dooming.reduce(self.doomed.values(), self.streams, now_ms=self.now_ms)
        topic_plan = topics.reduce(
            topics.TopicWorld(
                topics=list(self.topics.values()),
                partitions=self.partitions.values(),
                spus=self.spus.values(),
                containers=self.containers,
                placements=self.placements,
                streams=self.streams,
                doomed=frozenset(self.doomed),
                log_homes=self.log_homes,
                drained=frozenset(self.drained),
                out_of_storage=self.full,
                is_full=is_full,
            )
        )
        group_plan = groups.reduce(
            self.groups.values(), self.spus.values(), self.holding.__contains__, self.drained
        )
        actions = (
            spus.reduce(self.spus.values(), self.live),
            group_plan.actions,
            topic_plan.actions,
            partitions.reduce(
                partitions.PartitionWorld(
                    self.partitions.values(),
                    self.topics.values(),
                    self.placements,
                    self.spus.values(),
                    self.streams,
                    self.full,
                )
            ),
        )
        told = []
        if topic_plan.containers is not None:
            told.append(shown_containers(self.containers, topic_plan.containers))
            self.containers = topic_plan.containers
        for doom in topic_plan.dooms:
            told.append(f"> Doom {doom.topic}")
            self.doomed[doom.incarnation] = Doomed(
                topic=doom.topic, incarnation=doom.incarnation, since_ms=self.now_ms
            )
        told += [f"> Forget {self.doomed.pop(gone).topic}" for gone in doomed.forgotten]
        for mark in group_plan.drains:
            told.append(f"> {type(mark).__name__} {mark.node}")
            if isinstance(mark, groups.Drain):
                self.drained.add(mark.node)
            else:
                self.drained.discard(mark.node)
        for of_one_reducer in actions:
            told += self._store(of_one_reducer)
        told += self._commands((*topic_plan.commands, *doomed.commands))
        return told

    def _commands(self, commands: Sequence[BackingCommand]) -> Iterator[str]:
        """Each command that the last pass did not ask for; every pass repeats the others."""
        for command in commands:
            if command not in self.asked:
                yield shown_command(command)
        self.asked = set(commands)

    def _store(self, actions: Sequence[Action]) -> Iterator[str]:
        """Perform the actions of one reducer, by compare-and-set as a dispatcher does."""
        keys = [(action.kind.word, action.object.key) for action in actions]
        assert len(keys) == len(set(keys)), "two actions on one object"
        for action in actions:
            objects = self._objects_of(action.kind)
            before, after = objects.get(action.object.key), action.after
            if (before.revision if before else 0) != action.object.revision:
                continue
            yield f"> {type(action).__name__} {action.kind.word} {action.object.key}"
            if after is None:
                del objects[action.object.key]
            else:
                objects[after.key] = replace(after, revision=self._next_revision())
                yield f"= {shown(after)}"

    def _objects_of(self, kind: ObjectKind[Any, Any]) -> dict[str, ClusterObject[Any, Any]]:
        found: Mapping[str, dict[str, Any]] = {
            "SPU": self.spus,
            "SPU group": self.groups,
            "topic": self.topics,
            "partition": self.partitions,
        }
        return found[kind.word]


def shown(found: ClusterObject[Any, Any]) -> str:
    """One line for an object."""
    words = [found.key, *_words(found.spec), *_words(found.status)]
    return " ".join([*words, *(["deleting"] if found.deleting else [])])


def shown_command(command: BackingCommand) -> str:
    """One line for a command to a backing stream."""
    words = [f"> {type(command).__name__} {command.topic}"]
    if isinstance(command, CreateBacking | GrowBacking):
        words.append("containers=" + ",".join(map(str, command.containers)))
    if isinstance(command, GrowBacking):
        words.append(f"expected={command.expected}")
    return " ".join(words)


def shown_containers(before: TopicContainers, after: TopicContainers) -> str:
    """What a plan adds to the table of containers."""
    known = nodes_by_container(before)
    new = [
        f" {number}:{'+'.join(nodes)}"
        for number, nodes in nodes_by_container(after).items()
        if number not in known
    ]
    return f"= containers cursor={after.cursor}" + "".join(new)


def _words(part: object) -> Iterator[str]:
    match part:
        case SpuSpec():
            yield f"id={part.spu_id} {part.type}" + (f" rack={part.rack}" if part.rack else "")
        case SpuStatus():
            yield part.resolution
        case SpuGroupSpec():
            yield f"ids={part.min_id}..{part.min_id + part.replicas - 1}"
        case SpuGroupStatus() | TopicStatus():
            yield part.resolution + (f" ({part.reason})" if part.reason else "")
            if isinstance(part, TopicStatus) and part.replica_map:
                rows = zip(part.replica_map, part.containers, strict=True)
                yield " ".join(f"{ids(row)}@{container}" for row, container in rows)
        case PartitionSpec():
            yield f"leader={part.leader} replicas={ids(part.replicas)}@{part.container}"
        case PartitionStatus():
            yield f"{part.resolution} leader={part.leader} lrs={ids(part.lrs)} epoch={part.epoch}"


def ids(row: Sequence[int]) -> str:
    """SPU ids, as in ``1+2``."""
    return "+".join(map(str, row))
