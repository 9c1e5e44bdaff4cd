"""The commands that `anabranch` really has, asked from the application itself."""

import cyclopts

_BUILT_IN_PREFIX = "-"


def command_names(app: cyclopts.App, prefix: str = "") -> set[str]:
    """Every command, groups included: "up", "scope", "scope create"."""
    found: set[str] = set()
    for name in app:
        if name.startswith(_BUILT_IN_PREFIX):
            continue
        found.add(prefix + name)
        found |= command_names(app[name], f"{prefix}{name} ")
    return found
