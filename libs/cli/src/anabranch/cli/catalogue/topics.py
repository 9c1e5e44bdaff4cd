"""The commands for topics, their partitions, records and consumers."""

from collections.abc import Mapping

from anabranch.cli.catalogue.row import Command, Group

FROM_THE_BEGINNING: Mapping[str, str] = {"-B": "0", "--beginning": "0"}

RECORDS = (
    Command(
        "produce",
        "topics.produce:produce",
        "Produce records to a topic: the lines of standard input or of a file.",
        (
            "anabranch produce orders readings.txt",
            r"anabranch produce orders readings.txt --key-separator '\t'",
            "anabranch produce orders readings.txt --raw --key all --partition 0",
        ),
    ),
    Command(
        "consume",
        "topics.consume:consume",
        "Print a topic's records as they come, from its end or from another place on.",
        (
            "anabranch consume orders -B -d",
            "anabranch consume orders -T 2 -d --partition 0",
            "anabranch consume orders -B -d -F '{{partition}} {{offset}} {{key}}: {{value}}'",
            "anabranch consume orders -B -d --consumer billing --json",
        ),
        FROM_THE_BEGINNING,
    ),
)

TOPIC = Group(
    "topic",
    "Create, change, inspect and delete topics.",
    (
        Command(
            "create",
            "topics.admin:create",
            "Create a topic; the cluster assigns the replicas of its partitions to SPUs.",
            (
                "anabranch topic create payments --partitions 2",
                "anabranch topic create checked --retention-time 3d --dry-run",
            ),
        ),
        Command(
            "list",
            "topics.admin:list_all",
            "List the topics: type, partitions, replicas, retention, status and reason.",
            ("anabranch topic list",),
        ),
        Command(
            "describe",
            "topics.admin:describe",
            "Show a topic's configuration and status, and where its partitions are.",
            ("anabranch topic describe orders",),
        ),
        Command(
            "add-partition",
            "topics.admin:add_partitions",
            "Add partitions to a topic; its consumers find them by themselves.",
            ("anabranch topic add-partition orders --count 1",),
        ),
        Command(
            "update",
            "topics.admin:update",
            "Change the configuration of a topic: retention, sizes, compression, deduplication.",
            ("anabranch topic update orders --retention-time 3d",),
        ),
        Command(
            "rebalance",
            "topics.admin:rebalance",
            "Spread the leaders and replicas of topics over the SPUs that are online.",
            ("anabranch topic rebalance --dry-run",),
        ),
        Command(
            "delete",
            "topics.admin:delete",
            "Delete topics with all their records and the offsets of their consumers.",
            ("anabranch topic delete payments",),
        ),
    ),
)

PARTITION = Group(
    "partition",
    "Show the partitions of topics.",
    (
        Command(
            "list",
            "topics.partitions:list_all",
            "List partitions: leader, replicas, resolution, size, record numbers, live replicas.",
            ("anabranch partition list", "anabranch partition list --topic orders"),
        ),
    ),
)

CONSUMER = Group(
    "consumer",
    "Show and delete the offsets of named consumers.",
    (
        Command(
            "list",
            "topics.consumers:list_all",
            "List the committed offsets of named consumers.",
            ("anabranch consumer list", "anabranch consumer list --topic orders"),
        ),
        Command(
            "delete",
            "topics.consumers:delete",
            "Delete a named consumer's offsets, of one topic or one partition.",
            ("anabranch consumer delete billing --topic orders",),
        ),
    ),
)
