"""The commands for the data pipelines on Spark."""

from anabranch.cli.catalogue.row import Command, Group

PIPELINE = Group(
    "pipeline",
    "Archive, replay, check and aggregate streams with Spark.",
    (
        Command(
            "list",
            "commands.pipelines:list_all",
            "List the pipelines on Spark.",
            ("anabranch pipeline list",),
        ),
        Command(
            "run",
            "commands.pipelines:run",
            "Run a pipeline on Spark; its own arguments follow its name.",
            (
                "anabranch pipeline run archive --stream demo/sensors --out out/archive",
                "anabranch pipeline run archive -- --help",
            ),
        ),
    ),
)
