"""Registers a running cluster as a context, so that the next command in any directory finds it.

The context ends with the cluster. One that a killed `anabranch up` left behind is taken over. The
file of contexts is the user's: if it cannot be used, the cluster runs without a context.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.contexts import (
    Context,
    Contexts,
    change_contexts,
    contexts_file,
)
from anabranch.common.errors import InvalidRequest, InvalidSetting


@dataclass(frozen=True, slots=True)
class Registration:
    """`name` is empty if the cluster has no context, for the reason in `trouble`.

    `is_current`: commands without options talk to this cluster.
    """

    name: str = ""
    is_current: bool = False
    trouble: str = ""


def free_name(saved: Contexts, wished: str, is_alive: Callable[[int], bool]) -> str:
    """The wished name, or the first of ``wished-2``, ``wished-3`` … that no one else uses.

    A context of the user, or of an `anabranch up` that still runs, keeps its name.
    """
    number, name = 1, wished
    while (found := saved.named.get(name)) and (not found.up_pid or is_alive(found.up_pid)):
        number += 1
        name = f"{wished}-{number}"
    return name


@contextlib.contextmanager
def registered(
    wished: str, data_dir: Path, environment: Mapping[str, str]
) -> Iterator[Registration]:
    """Register the cluster in this directory for the duration of the block."""
    file, pid = contexts_file(environment), os.getpid()
    name = ""

    def register(saved: Contexts) -> Contexts:
        nonlocal name
        name = free_name(saved, wished, is_alive)
        return saved.registered(name, Context(data_dir=str(data_dir), up_pid=pid))

    try:
        saved = change_contexts(file, register)
    except (InvalidSetting, InvalidRequest) as error:
        yield Registration(trouble=f"{error}; {error.remedy_for('command')}")
        return
    try:
        yield Registration(name, is_current=saved.current == name)
    finally:
        with contextlib.suppress(InvalidSetting, InvalidRequest):
            change_contexts(file, lambda now: now.withdrawn(name, pid))


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
