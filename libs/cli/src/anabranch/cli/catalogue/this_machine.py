"""The commands for the program itself: where its cluster is, and how the shell completes it."""

from anabranch.cli.catalogue.row import Command, Group

CONTEXT = Group(
    "context",
    "Name clusters, and choose the one that commands talk to.",
    (
        Command(
            "add",
            "commands.contexts:add",
            "Save a cluster's address under a name.",
            ("anabranch context add production --http https://streams.example.com",),
        ),
        Command(
            "use",
            "commands.contexts:use",
            "Choose the cluster of later commands.",
            ("anabranch context use production",),
        ),
        Command(
            "list",
            "commands.contexts:list_all",
            "List the saved contexts; the current one is marked.",
            ("anabranch context list",),
        ),
        Command(
            "show",
            "commands.contexts:show",
            "Show which cluster a command without options would talk to, and why.",
            ("anabranch context show",),
        ),
        Command(
            "remove",
            "commands.contexts:remove",
            "Forget a saved context.",
            ("anabranch context remove production",),
        ),
    ),
)

COMPLETION = Group(
    "completion",
    "Complete commands and options in bash, zsh and fish.",
    (
        Command(
            "install",
            "completion:install",
            "Install the completion for your shell.",
            ("anabranch completion install", "anabranch completion install zsh"),
        ),
        Command(
            "show",
            "completion:show",
            "Print the completion script of a shell.",
            ("anabranch completion show bash",),
        ),
    ),
)
