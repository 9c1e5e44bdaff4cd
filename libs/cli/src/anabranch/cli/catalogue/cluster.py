"""The commands for operators, and for the damage that can happen to a cluster."""

from anabranch.cli.catalogue.row import Command, Group

CLUSTER = Group(
    "cluster",
    "Show the members of the cluster, live and missing.",
    (
        Command(
            "show",
            "commands.cluster:show",
            "Show an overview of the cluster: leader, members, containers by state, and holds.",
            ("anabranch cluster show",),
        ),
        Command(
            "controllers",
            "commands.cluster:controllers",
            "List the controllers: their state, since when, and the leader.",
            ("anabranch cluster controllers",),
        ),
        Command(
            "stores",
            "commands.cluster:stores",
            "List the segment stores: their state, since when, and their number of containers.",
            ("anabranch cluster stores --output json",),
        ),
        Command(
            "confirm-losses",
            "commands.cluster:confirm_losses",
            "Confirm the loss of members that fell silent at once, which ends the hold.",
            ("anabranch cluster confirm-losses",),
        ),
    ),
)

CONTAINER = Group(
    "container",
    "Show and change the placement of containers.",
    (
        Command(
            "list",
            "commands.containers:list_all",
            "List all containers: their state, container epoch, segment store, log and replicas.",
            ("anabranch container list",),
        ),
        Command(
            "explain",
            "commands.containers:explain",
            "Explain why a container does not serve, and how the cluster proceeds.",
            ("anabranch container explain 0",),
        ),
        Command(
            "move",
            "commands.containers:move",
            "Move a container to another segment store, and pin it there; its clients follow.",
            ("anabranch container move 0 --to NODE --wait",),
        ),
        Command(
            "unpin",
            "commands.containers:unpin",
            "Let the cluster move a container again, to balance its stores; a move pins it.",
            ("anabranch container unpin 0",),
        ),
        Command(
            "enable",
            "commands.containers:enable",
            "Let the store open a disabled or offline container again.",
            ("anabranch container enable 0",),
        ),
        Command(
            "abandon-tail",
            "commands.containers:abandon_tail",
            "Give up the data of a container that only a lost store holds, and open it elsewhere.",
            ("anabranch container abandon-tail 0 --to NODE",),
        ),
        Group(
            "replicas",
            "Change the stores that replicate a container's log.",
            (
                Command(
                    "set",
                    "commands.containers:set_replicas",
                    "Replicate a container's log on these stores from now on, one step at a time.",
                    ("anabranch container replicas set 0 NODE,other",),
                ),
            ),
        ),
        Command(
            "elect",
            "commands.containers:elect",
            "Let a replica lead that may lack acknowledged events, if all in-sync copies are lost.",
            ("anabranch container elect 0 --unclean",),
        ),
    ),
)

SPU = Group(
    "spu",
    "Register and list SPUs, and drain one before its machine goes.",
    (
        Command(
            "register",
            "topics.spus:register",
            "Register a custom SPU, so that the segment store of this name may join.",
            ("anabranch spu register --id 7001 -p 10.0.0.7:9005 -l 10.0.0.7:9006 --rack zone-1",),
        ),
        Command(
            "unregister",
            "topics.spus:unregister",
            "Unregister a custom SPU; its segment store may not join any more.",
            ("anabranch spu unregister --id 7001",),
        ),
        Command(
            "list",
            "topics.spus:list_all",
            "List the SPUs: id, name, status, type, rack, endpoints, and the state of their "
            "stores.",
            ("anabranch spu list",),
        ),
        Command(
            "drain",
            "commands.spus:drain",
            "Move containers and replicas off a segment store, one at a time, and give it none.",
            ("anabranch spu drain NODE --no-wait",),
        ),
        Command(
            "undrain",
            "commands.spus:undrain",
            "Let a segment store that was drained have containers again.",
            ("anabranch spu undrain NODE",),
        ),
    ),
)

SPU_GROUP = Group(
    "spg",
    "Create, scale and delete groups of managed SPUs.",
    (
        Command(
            "create",
            "topics.spu_groups:create",
            "Create an SPU group: so many managed SPUs, which the provisioner starts.",
            ("anabranch spg create batch --replicas 0 --min-id 8001",),
        ),
        Command(
            "scale",
            "topics.spu_groups:scale",
            "Change the number of a group's SPUs; those with the highest ids are drained and "
            "stopped.",
            ("anabranch spg scale batch --replicas 0",),
        ),
        Command(
            "list",
            "topics.spu_groups:list_all",
            "List the SPU groups: replicas, first id, rack, storage size and status.",
            ("anabranch spg list",),
        ),
        Command(
            "delete",
            "topics.spu_groups:delete",
            "Delete an SPU group; its SPUs are drained and stopped.",
            ("anabranch spg delete batch",),
        ),
    ),
)

OPERATION = Group(
    "operation",
    "List operations, pending work and parked commands.",
    (
        Command(
            "list",
            "commands.operation_lists:list_all",
            "List operations: the accepted commands with their states.",
            ("anabranch operation list --state failed --scope demo",),
        ),
        Command(
            "describe",
            "commands.operation_lists:describe",
            "Show an operation: its present step and age, or its result.",
            ("anabranch operation describe OPERATION",),
        ),
        Command(
            "work",
            "commands.work:work",
            "List pending work by name, with the reason why it is not done yet.",
            ("anabranch operation work",),
        ),
        Command(
            "parked",
            "commands.operations:parked",
            "List the commands and the aggregates that the controllers parked because of a defect.",
            ("anabranch operation parked",),
        ),
        Command(
            "redrive",
            "commands.operations:redrive",
            "Handle a parked command again, under its own id, or resume the work on an aggregate.",
            ("anabranch operation redrive COMMAND",),
        ),
        Command(
            "drop",
            "commands.operations:drop",
            "Discard a parked command: no controller will handle it.",
            ("anabranch operation drop COMMAND",),
        ),
    ),
)

CONTROLLER = Group(
    "controller",
    "Back up, verify and repair the cluster's metadata.",
    (
        Command(
            "backup",
            "commands.controllers:backup",
            "Write all metadata to a directory or bucket, while the cluster runs.",
            ("anabranch controller backup BACKUP",),
        ),
        Command(
            "restore",
            "commands.controllers:restore",
            "Fill an empty NATS server with the metadata of a backup, before any controller "
            "starts.",
            ("anabranch controller restore BACKUP --nats nats://127.0.0.1:4222",),
        ),
        Command(
            "verify",
            "commands.controllers:verify",
            "Read all metadata as a controller would, and list the damage; change nothing.",
            ("anabranch controller verify",),
        ),
        Command(
            "repair",
            "commands.controllers:repair",
            "Bring a damaged scope or stream back to the last state that can be trusted.",
            ("anabranch controller repair SUBJECT --from-backup BACKUP",),
        ),
    ),
)

SEGSTORE = Group(
    "segstore",
    "Manage segment stores.",
    (
        Command(
            "list",
            "commands.spus:list_all",
            "List the segment stores: node id, state, kind of log, rack, containers and address.",
            ("anabranch segstore list",),
        ),
        Command(
            "flush",
            "commands.segstore:flush",
            "Move all acknowledged data to tier 2, and return when it is there.",
            ("anabranch segstore flush",),
        ),
        Command(
            "journal",
            "commands.segstore:journal",
            "Read a store's journal, check every frame, and show its contents; change nothing.",
            ("anabranch segstore journal DIRECTORY",),
        ),
        Command(
            "repair",
            "commands.segstore:repair",
            "Make the damaged journal of a stopped store usable, without the data behind the "
            "damage.",
            ("anabranch segstore repair DIRECTORY",),
        ),
    ),
)

TIER2 = Group(
    "tier2",
    "Inspect tier 2; needs no cluster.",
    (
        Command(
            "streams",
            "commands.tier2:streams",
            "List the streams that controllers exported to tier 2.",
            ("anabranch tier2 streams",),
        ),
        Command(
            "containers",
            "commands.tier2:containers",
            "List the containers: newest manifest, container epoch, and size.",
            ("anabranch tier2 containers",),
        ),
        Command(
            "segments",
            "commands.tier2:segments",
            "List the segments, of all containers or of one.",
            ("anabranch tier2 segments --container 0",),
        ),
        Command(
            "chunk",
            "commands.tier2:chunk",
            "Show a chunk's contents, by its footer.",
            ("anabranch tier2 chunk CHUNK",),
        ),
        Command(
            "verify",
            "commands.tier2:verify",
            "Read all of tier 2, or one container's part, and check every checksum.",
            ("anabranch tier2 verify",),
        ),
    ),
)
