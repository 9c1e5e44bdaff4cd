"""The topics, partitions and SPUs that need attention, with the reason and a remedy.

One refresh asks for one page of topics and of SPUs, and for the partitions of a few of the topics
that have some which are not online.
"""

from collections.abc import Iterator, Sequence

from anabranch.cli.top.snapshot import TopicLine, Topics
from anabranch.client import Client, NotFound
from anabranch.common.contracts.spus import SpuDescription
from anabranch.common.contracts.topics import PartitionDescription, TopicDescription
from anabranch.common.model.objects import PartitionResolution, SpuResolution, TopicResolution

TOPICS_ASKED_MAX = 4
START_SPUS = "start the SPUs of its replicas"
MORE_SPUS = "start or register more SPUs"


async def ask_topics(client: Client, limit: int) -> Topics:
    """The things that need attention, at most `limit` lines. Raises Unavailable."""
    page = await client.topics.page(system=True)
    spus = await client.spus.page()
    lacking = [one.topic for one in page.topics if _lacks(one)]
    partitions: list[PartitionDescription] = []
    for name in lacking[:TOPICS_ASKED_MAX]:
        try:
            partitions += await client.topics.partitions(name)
        except NotFound:
            continue  # deleted meanwhile
    found = [
        *spu_lines(spus.spus),
        *topic_lines(page.topics),
        *partition_lines(partitions),
    ]
    return Topics(found[:limit], len(page.topics), not page.next_page_token, len(found))


def topic_lines(found: Sequence[TopicDescription]) -> Iterator[TopicLine]:
    """The topics that wait for resources, are invalid, or have partitions that are not online."""
    for one in found:
        if one.deleting or not (_lacks(one) or one.resolution is not TopicResolution.PROVISIONED):
            continue
        yield TopicLine(
            one.topic,
            one.resolution.value,
            one.reason,
            _topic_remedy(one),
            one.partitions_online,
            one.partition_count,
        )


def partition_lines(found: Sequence[PartitionDescription]) -> Iterator[TopicLine]:
    """The partitions that are not online."""
    for one in found:
        if one.resolution is PartitionResolution.ONLINE or one.deleting:
            continue
        full = one.resolution is PartitionResolution.OUT_OF_STORAGE
        remedy = "keep less, or give the SPUs more storage" if full else START_SPUS
        reason = f"replicas on SPUs {', '.join(map(str, one.replicas))}"
        yield TopicLine(f"{one.topic}-{one.partition}", one.resolution.value, reason, remedy)


def spu_lines(found: Sequence[SpuDescription]) -> Iterator[TopicLine]:
    """The SPUs that are not online, and the stores that were refused."""
    for one in found:
        if one.refused:
            remedy = "register it, or stop its store"
            yield TopicLine(f"SPU {one.name}", "refused", "it is not registered", remedy)
        elif one.resolution is not SpuResolution.ONLINE and not one.deleting:
            never = one.resolution is SpuResolution.INIT
            reason = "it has never joined" if never else "its store is silent"
            state = one.resolution.value
            yield TopicLine(f"SPU {one.spec.spu_id}", state, reason, "start its segment store")


def _lacks(one: TopicDescription) -> bool:
    return one.partitions_online < one.partition_count


def _topic_remedy(one: TopicDescription) -> str:
    match one.resolution:
        case TopicResolution.INSUFFICIENT_RESOURCES:
            return MORE_SPUS
        case TopicResolution.INVALID_CONFIG:
            return "delete it, and create it with a valid configuration"
        case TopicResolution.PROVISIONED:
            return START_SPUS
        case _:
            return "wait some seconds"
