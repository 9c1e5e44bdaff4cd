"""The arguments of a pipeline, declared once, as the fields of a frozen dataclass.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Arguments(StreamInput):
        out: Path = argument("directory of the results")
        rate: float | None = argument("events per second", default=None)
        compact: bool = argument("rewrite small files", default=False)

A field without a default is required; `bool` is a flag; a tuple takes several words. Fields with
the same `one_of` exclude each other. Pure.
"""

import argparse
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from anabranch.common.errors import InvalidRequest

A = TypeVar("A")

NATS_VARIABLE = "ANABRANCH_NATS_URL"
_META = "anabranch.argument"


@dataclass(frozen=True, slots=True)
class _Told:
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    one_of: str | None


def argument(
    help: str,  # noqa: A002 (argparse's word)
    *,
    default: Any = MISSING,
    metavar: str | None = None,
    choices: Sequence[str] = (),
    one_of: str | None = None,
) -> Any:
    """A field of a dataclass of arguments."""
    told = _Told(help, metavar, tuple(choices), one_of)
    return field(default=default, metadata={_META: told})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInput:
    """The input of a pipeline that reads one stream."""

    stream: str = argument("scope/stream")
    tier2: str | None = argument(
        "read straight from tier 2, such as file:///…",
        default=None, metavar="URL", one_of="source",
    )  # fmt: skip
    nats: str | None = argument(
        "read from the stores: a URL, or a cluster's endpoints file "
        f"(default: the variable {NATS_VARIABLE})",
        default=None, metavar="WHERE", one_of="source",
    )  # fmt: skip

    def source(self, environment: Mapping[str, str]) -> tuple[str, str]:
        """The option of the data source that names the place, and its value.

        Raises InvalidRequest if neither the arguments nor the environment name one.
        """
        if self.tier2:
            return "tier2", self.tier2
        return "nats_url", nats_url(self.nats, environment)


def nats_url(given: str | None, environment: Mapping[str, str]) -> str:
    """The address of the cluster. Raises InvalidRequest without one."""
    found = given or environment.get(NATS_VARIABLE)
    if not found:
        raise InvalidRequest(
            "the pipeline needs the place of a cluster",
            remedy=f"give --nats, or set {NATS_VARIABLE}, to a URL or an endpoints file",
        )
    return found


def add_arguments(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Declare the fields of the dataclass `kind` to the parser."""
    hints = typing.get_type_hints(kind)
    exclusive: dict[str, Any] = {}
    for each in fields(kind):
        told: _Told = each.metadata[_META]
        place: Any = parser
        if told.one_of is not None:
            place = exclusive.setdefault(told.one_of, None) or parser.add_mutually_exclusive_group()
            exclusive[told.one_of] = place
        place.add_argument(f"--{each.name.replace('_', '-')}", **_options(each, hints[each.name]))


def parsed(kind: type[A], namespace: argparse.Namespace) -> A:
    """The dataclass from the namespace of argparse."""
    found = {each.name: getattr(namespace, each.name) for each in fields(typing.cast(Any, kind))}
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})


def _options(each: Field[Any], hint: Any) -> dict[str, Any]:
    told: _Told = each.metadata[_META]
    chosen: dict[str, Any] = {"help": told.help, "dest": each.name}
    if each.default is MISSING:
        chosen["required"] = True
    else:
        chosen["default"] = each.default
    if hint is bool:
        return {**chosen, "action": "store_true"}
    if typing.get_origin(hint) is tuple:
        chosen["nargs"] = "+"
    if told.metavar is not None:
        chosen["metavar"] = told.metavar
    if told.choices:
        chosen["choices"] = told.choices
    return {**chosen, "type": _plain(hint)}


def _plain(hint: Any) -> Any:
    """`str` of `str | None` and of `tuple[str, ...]`."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (typing.Union, tuple):
        return next(one for one in typing.get_args(hint) if one not in (type(None), ...))
    return hint
