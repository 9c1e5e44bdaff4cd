"""The user's contexts: named clusters, and which of them commands talk to.

They are in ``contexts.json`` in the user's configuration directory (``$XDG_CONFIG_HOME/anabranch``,
by default ``~/.config/anabranch``), readable by the user alone: an address may hold a password. The
file is replaced whole, so that a reader never sees half of it, and changed under a lock, so that
of two changes at once none is lost.

`anabranch up` registers its cluster while it runs. It makes its context the current one unless the
user has chosen another cluster that still stands.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from anabranch.common.errors import InvalidRequest, InvalidSetting

CONTEXT_COUNT_MAX = 1000
LOCK_TRIES, LOCK_PAUSE_S = 100, 0.02
"""Two seconds."""


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster. Exactly one of `http`, `nats` and `data_dir` is set.

    `up_pid` is the process id of the `anabranch up` that registered it; 0 for the user's own.
    """

    http: str = ""
    nats: str = ""
    data_dir: str = ""
    up_pid: int = 0

    @property
    def kind(self) -> str:
        """The option that names this kind of address: http, nats or data-dir."""
        return "http" if self.http else "nats" if self.nats else "data-dir"


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user. `current` is a name, or empty."""

    named: Mapping[str, Context] = field(default_factory=dict)
    current: str = ""

    def add(self, name: str, context: Context) -> "Contexts":
        """Save or replace a context. Raises InvalidRequest for a name that cannot be typed."""
        if not name or not name.isprintable() or name.startswith("-") or " " in name:
            raise InvalidRequest(
                f"{name!r} cannot name a context",
                remedy="use letters, digits, dots and dashes",
            )
        if len(self.named) >= CONTEXT_COUNT_MAX and name not in self.named:
            raise InvalidRequest(
                "there are too many contexts",
                remedy="remove one: anabranch context remove NAME",
                contexts=len(self.named),
            )
        return replace(self, named={**self.named, name: context})

    def use(self, name: str) -> "Contexts":
        """Make a context the current one. Raises InvalidRequest if no context has this name."""
        self.get(name)
        return replace(self, current=name)

    def remove(self, name: str) -> "Contexts":
        """Forget a context. Raises InvalidRequest if no context has this name."""
        self.get(name)
        named = {one: context for one, context in self.named.items() if one != name}
        return Contexts(named, "" if self.current == name else self.current)

    def get(self, name: str) -> Context:
        """Raises InvalidRequest if no context has this name."""
        found = self.named.get(name)
        if found is None:
            known = ", ".join(sorted(self.named))
            raise InvalidRequest(
                f"no context is named {name!r}",
                remedy="list them with `anabranch context list`",
                known=known or "none",
            )
        return found

    def registered(self, name: str, context: Context) -> "Contexts":
        """The contexts while an `anabranch up` runs; its own is current unless the user chose."""
        chosen = self.named.get(self.current)
        added = self.add(name, context)
        return added if chosen is not None and not chosen.up_pid else added.use(name)

    def withdrawn(self, name: str, up_pid: int) -> "Contexts":
        """The contexts after this `anabranch up` ended; another one's registration stays."""
        found = self.named.get(name)
        return self.remove(name) if found is not None and found.up_pid == up_pid else self


def contexts_file(environment: Mapping[str, str]) -> Path:
    """The place of the user's contexts."""
    home = environment.get("XDG_CONFIG_HOME") or ""
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return folder / "anabranch" / "contexts.json"


def load_contexts(file: Path) -> Contexts:
    """The saved contexts; none without a file. Raises InvalidSetting for a damaged file."""
    try:
        text = file.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, str(error)) from error
    try:
        found = json.loads(text)
        named = {str(name): Context(**one) for name, one in found["contexts"].items()}
        return Contexts(named, str(found["current"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unusable(file, "it holds no contexts") from error


def save_contexts(file: Path, contexts: Contexts) -> None:
    """Replace the file. Raises InvalidSetting if that is impossible."""
    body = {
        "current": contexts.current,
        "contexts": {name: asdict(one) for name, one in sorted(contexts.named.items())},
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.{os.getpid()}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as target:
            target.write(json.dumps(body, indent=2) + "\n")
        new.replace(file)
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from error


def change_contexts(file: Path, change: Callable[[Contexts], Contexts]) -> Contexts:
    """Load, change and save the contexts; returns the changed ones.

    Raises InvalidSetting, and the errors of `change`, which leave the file as it is.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from error
    try:
        _lock(file, lock)
        changed = change(load_contexts(file))
        save_contexts(file, changed)
    finally:
        os.close(lock)
    return changed


def _lock(file: Path, lock: int) -> None:
    """Take the lock, which others hold only while they read and write one small file."""
    pause = threading.Event()
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pause.wait(LOCK_PAUSE_S)
        else:
            return
    raise _unusable(file, "another command is changing it and does not end")


def _unusable(file: Path, cause: str) -> InvalidSetting:
    return InvalidSetting(
        "the file with the contexts cannot be used",
        remedy="correct it, or delete it and add the contexts again",
        path=str(file),
        cause=cause,
    )
