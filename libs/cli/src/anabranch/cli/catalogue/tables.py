"""The commands for key-value tables."""

from anabranch.cli.catalogue.row import Command, Group

TABLE = Group(
    "table",
    "Create and delete key-value tables; put, get, scan, watch and load their entries.",
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
            "put",
            "commands.table_entries:put",
            "Put a value under a key of a table, whether or not the key has an entry.",
            (
                "anabranch table put demo/readings boiler 21.5",
                "anabranch table put demo/readings boiler --file readings.txt --ttl 12h",
            ),
        ),
        Command(
            "get",
            "commands.table_entries:get",
            "Print the value of a key of a table, or its whole entry as JSON or YAML.",
            (
                "anabranch table get demo/readings boiler",
                "anabranch table get demo/readings boiler --json",
            ),
        ),
        Command(
            "insert",
            "commands.table_entries:insert",
            "Put a value under a key of a table that has no entry yet.",
            ("anabranch table insert demo/readings valve 3",),
        ),
        Command(
            "replace",
            "commands.table_entries:replace",
            "Replace the value of an entry of a table, if the entry has this version.",
            ("anabranch table replace demo/readings boiler 22 --version VERSION",),
        ),
        Command(
            "remove",
            "commands.table_entries:remove",
            "Remove the entry of a key from a table; without --version, also if there is none.",
            (
                "anabranch table remove demo/readings valve",
                "anabranch table remove demo/readings boiler --version VERSION",
            ),
        ),
        Command(
            "load",
            "commands.table_load:load",
            "Put many entries into a key-value table, from a file or standard input.",
            (
                "anabranch table load demo/readings readings.csv --format csv --key-field sensor",
                r"anabranch table load demo/readings pairs.txt --format lines --key-separator '\t'",
            ),
        ),
        Command(
            "scan",
            "commands.table_scan:scan",
            "Print the entries of a key-value table in the order of their keys.",
            (
                "anabranch table scan demo/readings --prefix b --count 10",
                r"anabranch table scan demo/readings --format '{key}\t{value}\n'",
                "anabranch table scan demo/readings --output parquet --file readings.parquet",
            ),
        ),
        Command(
            "watch",
            "commands.table_scan:watch",
            "Print the changes of a key-value table as they happen, until Ctrl-C.",
            (
                "anabranch table watch demo/readings --count 1",
                "anabranch table watch demo/readings --from now --json",
            ),
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
