"""The commands for programs and their data: a cluster to try, events, streams, groups."""

from anabranch.cli.catalogue.row import Command, Group

STARTING = (
    Command(
        "up",
        "up.command:up",
        "Start a cluster on this machine and keep it running until Ctrl-C.",
        (
            "anabranch up",
            "anabranch up --ephemeral",
            "anabranch up --spus 3 --controllers 2",
            "anabranch up --spus 3 --nats 3 --log jetstream",
            "anabranch up --spus 3 --replication 3",
        ),
    ),
    Command(
        "demo",
        "demo.command:demo",
        "Replay 336,776 real flights through a fresh cluster and check every one of them.",
        ("anabranch demo --quick", "anabranch demo"),
    ),
    Command(
        "demo-scaling",
        "demo.by_load.command:demo_scaling",
        "Replay the flights at a changing rate, and watch the stream scale by itself.",
        ("anabranch demo-scaling",),
    ),
)

EVENTS = (
    Command(
        "write",
        "commands.write:write",
        "Write events to a stream, named scope/stream: one per line, or in another format.",
        (
            "anabranch write demo/sensors readings.txt",
            r"anabranch write demo/sensors readings.txt --key-separator '\t'",
            "anabranch write demo/sensors readings.csv --format csv --key-field sensor",
            "anabranch write demo/sensors readings.csv --format csv --transaction",
        ),
    ),
    Command(
        "read",
        "commands.read:read",
        "Print a stream's events, or as a reader of a group; one per line, keys keep their order.",
        (
            "anabranch read demo/sensors",
            "anabranch read demo/sensors --from tail --follow",
            r"anabranch read demo/sensors --format '{time}\t{key}\t{payload}\n'",
            "anabranch read demo/sensors --from 2026-11-21 --until 2026-11-22",
            "anabranch read demo/sensors --output parquet --file sensors.parquet",
            "anabranch read --group demo/workers --count 3",
        ),
    ),
)

SCOPE = Group(
    "scope",
    "Create, list and delete scopes.",
    (
        Command(
            "create",
            "commands.scopes:create",
            "Create a scope: a namespace of streams, reader groups and tables.",
            ("anabranch scope create plant",),
        ),
        Command(
            "list",
            "commands.scopes:list_all",
            "List the scopes by name.",
            ("anabranch scope list",),
        ),
        Command(
            "describe",
            "commands.scopes:describe",
            "Show a scope.",
            ("anabranch scope describe demo",),
        ),
        Command(
            "delete",
            "commands.scopes:delete",
            "Delete a scope that is empty, or with --recursive, with everything in it.",
            ("anabranch scope delete plant",),
        ),
    ),
)

STREAM = Group(
    "stream",
    "Create, change, inspect, seal and delete streams.",
    (
        Command(
            "create",
            "commands.reshape:create",
            "Create a stream, named scope/stream, with one segment by default.",
            (
                "anabranch stream create demo/valves --segments 4",
                "anabranch stream create demo/pumps --by-events 1000 --factor 4 --min 2",
            ),
        ),
        Command(
            "list",
            "commands.streams:list_all",
            "List a scope's streams by name.",
            ("anabranch stream list demo",),
        ),
        Command(
            "describe",
            "commands.streams:describe",
            "Show a stream's state.",
            ("anabranch stream describe demo/sensors",),
        ),
        Command(
            "config",
            "commands.streams:config",
            "Show a stream's configuration: scaling, retention, tags.",
            ("anabranch stream config demo/sensors",),
        ),
        Command(
            "update",
            "commands.reshape:update",
            "Change a stream's configuration; omitted options keep their values.",
            ("anabranch stream update demo/sensors --retain-time 3d --retain-time-max 30d",),
        ),
        Command(
            "segments",
            "commands.streams:segments",
            "List a stream's segments and their share of the keys.",
            (
                "anabranch stream segments demo/sensors",
                "anabranch stream segments demo/sensors --rates",
            ),
        ),
        Command(
            "segment",
            "commands.streams:segment",
            "Show one segment of a stream, present or past, and its successors.",
            ("anabranch stream segment demo/sensors 0",),
        ),
        Command(
            "epochs",
            "commands.streams:epochs",
            "List the epochs of a stream, newest first: the time, cause and kind of each scale.",
            ("anabranch stream epochs demo/sensors",),
        ),
        Command(
            "scale",
            "commands.reshape:scale",
            "Replace segments by others: --split one, --merge two, or --seal some for --ranges.",
            ("anabranch stream scale demo/sensors --split 0",),
        ),
        Command(
            "explain",
            "commands.scaling:explain",
            "Explain auto-scaling: rates, thresholds, times, missing reports, and the last "
            "decision.",
            ("anabranch stream explain demo/sensors",),
        ),
        Command(
            "cut",
            "commands.streams:cut",
            "Show a cut of a stream, to keep or to truncate at.",
            ("anabranch stream cut demo/sensors --tail",),
        ),
        Command(
            "truncate",
            "commands.reshape:truncate",
            "Delete all events before a cut, irrevocably.",
            ("anabranch stream truncate demo/sensors --at-tail",),
        ),
        Command(
            "retention",
            "commands.retention:retention",
            "Show the next release of a stream's retention policy, its holders, and earlier "
            "releases.",
            ("anabranch stream retention demo/sensors",),
        ),
        Command(
            "subscribers",
            "commands.streams:subscribers",
            "List the reader groups for which a stream keeps events, with the release of each.",
            ("anabranch stream subscribers demo/sensors",),
        ),
        Command(
            "watermarks",
            "commands.watermarks:watermarks",
            "Show how far a stream's watermark is, which writers count, and which one holds it "
            "back.",
            ("anabranch stream watermarks demo/sensors",),
        ),
        Command(
            "writers",
            "commands.watermarks:writers",
            "List the last time that each writer of a stream noted, with its positions.",
            ("anabranch stream writers demo/sensors",),
        ),
        Command(
            "note-time",
            "commands.watermarks:note_time",
            "Note for a writer that its further events are of this time or later.",
            (
                "anabranch stream note-time demo/sensors 0000000000000000000000000000000a "
                "2026-11-22T08:00:00",
            ),
        ),
        Command(
            "remove-writer",
            "commands.watermarks:remove_writer",
            "Say that a writer is gone for good, so that it holds no watermark back.",
            ("anabranch stream remove-writer demo/sensors 0000000000000000000000000000000a",),
        ),
        Command(
            "wait",
            "commands.reshape:wait",
            "Wait until a stream has no pending change and has the requested state.",
            ("anabranch stream wait demo/sensors --state active",),
        ),
        Command(
            "seal",
            "commands.reshape:seal",
            "Make a stream read-only, irrevocably.",
            ("anabranch stream seal demo/valves",),
        ),
        Command(
            "delete",
            "commands.reshape:delete",
            "Delete a sealed stream with all its events.",
            ("anabranch stream delete demo/valves",),
        ),
    ),
)

GROUP = Group(
    "group",
    "Create, inspect, reset and delete reader groups.",
    (
        Command(
            "create",
            "commands.groups:create",
            "Create a reader group, named scope/group, of one or more --stream.",
            ("anabranch group create demo/auditors --stream demo/sensors",),
        ),
        Command(
            "list",
            "commands.groups:list_all",
            "List a scope's reader groups by name.",
            ("anabranch group list demo",),
        ),
        Command(
            "show",
            "commands.groups:show",
            "Show each reader's segments and lag, and the readers that checkpoints wait for.",
            ("anabranch group show demo/workers",),
        ),
        Command(
            "checkpoint",
            "commands.groups:checkpoint",
            "Make a checkpoint: a cut of every stream before which all events are processed.",
            ("anabranch group checkpoint demo/workers --name noon",),
        ),
        Command(
            "cuts",
            "commands.groups:cuts",
            "Show the positions of a group's readers, as cuts to keep or to reset a group to.",
            ("anabranch group cuts demo/workers",),
        ),
        Command(
            "offline",
            "commands.groups:offline",
            "Take a reader's segments away at once; others continue from its saved positions.",
            ("anabranch group offline demo/workers reader-1",),
        ),
        Command(
            "reset",
            "commands.groups:reset",
            "Reset a reader group to its start or another position, or give it another "
            "configuration.",
            (
                "anabranch group reset demo/workers --to head",
                "anabranch group reset demo/workers --to-time 2026-01-01T12:00 --dry-run",
            ),
        ),
        Command(
            "delete",
            "commands.groups:delete",
            "Delete a reader group; its streams stay.",
            ("anabranch group delete demo/auditors",),
        ),
    ),
)

TRANSACTION = Group(
    "transaction",
    "Write events that become readable together: begin, write, commit or abort.",
    (
        Command(
            "begin",
            "commands.transactions:begin",
            "Begin a transaction of a stream, named scope/stream, and print its id.",
            ("anabranch transaction begin demo/sensors --lease 5m",),
        ),
        Command(
            "write",
            "commands.transactions:write",
            "Write events into a transaction; they are durable there when the command ends.",
            ("anabranch transaction write demo/sensors TRANSACTION readings.txt",),
        ),
        Command(
            "ping",
            "commands.transactions:ping",
            "Keep a transaction alive for another lease.",
            ("anabranch transaction ping demo/sensors TRANSACTION",),
        ),
        Command(
            "list",
            "commands.transactions:list_all",
            "List a stream's transactions that have not ended.",
            ("anabranch transaction list demo/sensors",),
        ),
        Command(
            "show",
            "commands.transactions:show",
            "Show the state of a transaction, or its outcome.",
            ("anabranch transaction show demo/sensors TRANSACTION",),
        ),
        Command(
            "commit",
            "commands.transactions:commit",
            "Commit a transaction: all of its events become readable, irrevocably.",
            ("anabranch transaction commit demo/sensors TRANSACTION",),
        ),
        Command(
            "abort",
            "commands.transactions:abort",
            "Abort a transaction: none of its events ever becomes readable.",
            ("anabranch transaction abort demo/sensors TRANSACTION",),
        ),
        Group(
            "application",
            "Show and forget the committed versions of applications.",
            (
                Command(
                    "show",
                    "commands.transactions:show_application",
                    "Show an application's committed version of a stream, and its open "
                    "transaction.",
                    ("anabranch transaction application show demo/sensors etl",),
                ),
                Command(
                    "forget",
                    "commands.transactions:forget",
                    "Forget an application's committed version: it may begin at any version again.",
                    ("anabranch transaction application forget demo/sensors etl",),
                ),
            ),
        ),
    ),
)
