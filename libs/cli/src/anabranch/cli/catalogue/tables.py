"""The commands for key-value tables."""

from anabranch.cli.catalogue.row import Command, Group

TABLE = Group(
    "table",
    "Create, configure, seal and delete key-value tables.",
    (
        Command(
            "create",
            "commands.tables:create",
            "Create a key-value table, named scope/table, with four partitions by default.",
            (
                "anabranch table create demo/latest",
                "anabranch table create demo/sessions --primary-key-size 16 --ttl 1d",
            ),
        ),
        Command(
            "list",
            "commands.tables:list_all",
            "List a scope's key-value tables by name.",
            ("anabranch table list demo",),
        ),
        Command(
            "describe",
            "commands.tables:describe",
            "Show a key-value table's state, configuration and partitions.",
            ("anabranch table describe demo/readings",),
        ),
        Command(
            "update",
            "commands.tables:update",
            "Change how long the entries of a key-value table live after later puts.",
            ("anabranch table update demo/readings --ttl 7d",),
        ),
        Command(
            "seal",
            "commands.tables:seal",
            "Make a key-value table read-only, irrevocably.",
            ("anabranch table seal demo/latest",),
        ),
        Command(
            "delete",
            "commands.tables:delete",
            "Delete a key-value table with all its entries.",
            ("anabranch table delete demo/latest",),
        ),
    ),
)
