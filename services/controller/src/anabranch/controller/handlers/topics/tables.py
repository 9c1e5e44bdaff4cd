"""The queries and actions of this room, for the registry."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anabranch.common.contracts import spus, topics
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question
from anabranch.controller.handlers.desk.desk import QueryDesk, Table
from anabranch.controller.handlers.desk.topics import TopicDesk
from anabranch.controller.handlers.topics import consumers, queries, spu_actions, topic_actions

Answer = Callable[[TopicDesk, Any], Awaitable[Contract]]

_ANSWERS: Mapping[str, Answer] = {
    "describe_topic": queries.describe_topic,
    "list_topics": queries.list_topics,
    "list_partitions": queries.list_partitions,
    "list_consumers": consumers.list_consumers,
    "list_spus": queries.list_spus,
    "list_spu_groups": queries.list_spu_groups,
    "create_topic": topic_actions.create_topic,
    "delete_topic": topic_actions.delete_topic,
    "add_partitions": topic_actions.add_partitions,
    "update_topic": topic_actions.update_topic,
    "name_consumer": consumers.name_consumer,
    "forget_consumer": consumers.forget_consumer,
    "rebalance_topics": topic_actions.rebalance_topics,
    "register_spu": spu_actions.register_spu,
    "unregister_spu": spu_actions.unregister_spu,
    "create_spu_group": spu_actions.create_spu_group,
    "scale_spu_group": spu_actions.scale_spu_group,
    "delete_spu_group": spu_actions.delete_spu_group,
}


def _of_topics(answer: Answer) -> Any:
    async def ask(desk: QueryDesk, query: Query) -> Contract:
        return await answer(desk.topics, query)

    return ask


def _table(*registries: Mapping[str, Question]) -> Table:
    return {
        name: (question.query, _of_topics(_ANSWERS[name]))
        for registry in registries
        for name, question in registry.items()
    }


QUERIES: Table = _table(topics.QUERIES, spus.QUERIES)
ACTIONS: Table = _table(topics.ACTIONS, spus.ACTIONS)
SLOW = frozenset({"describe_topic", "list_partitions", "list_consumers"})
"""The queries that may read the object store before they are answered."""
