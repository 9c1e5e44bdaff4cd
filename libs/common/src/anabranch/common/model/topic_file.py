"""The topic file: name and spec of a topic, from the mapping that a YAML parser returns. Pure.

::

    version: 0.1.0
    meta:
      name: orders
    partition:
      count: 3                      # or maps: [{id: 0, replicas: [5001, 5002]}]
      replication: 2
      ignore-rack-assignment: false
      max-size: 10 GB
    retention:
      time: 7d
      segment-size: 1 GiB
    compression:
      type: zstd
    deduplication:
      bounds: {count: 1000, age: 1h}

Keys are written in kebab-case or snake_case. An unknown key is refused by its name.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from anabranch.common.errors import InvalidRequest, InvalidTopic
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    Deduplication,
    TopicSpec,
)
from anabranch.common.model.quantities import duration_s, size_bytes
from anabranch.common.model.topics import TopicName, topic_name

VERSION = "0.1.0"
_UNSUPPORTED_CODECS = ("gzip", "snappy", "lz4")
_DEFAULT = TopicSpec()

V = TypeVar("V")


def topic_from_mapping(loaded: object) -> tuple[TopicName, TopicSpec]:
    """(name, spec) of a loaded topic file. Raises InvalidName, InvalidTopic."""
    root = _Section("", loaded)
    version = root.take("version", _text, VERSION)
    if version != VERSION:
        raise _fault(f"version {version} of topic files is not supported: {VERSION} is")
    meta, partition = root.section("meta"), root.section("partition")
    retention, compression = root.section("retention"), root.section("compression")
    name = topic_name(meta.take("name", _text, ""))
    spec = TopicSpec(
        replicas=_replicas(partition),
        retention_s=retention.take("time", duration_s, _DEFAULT.retention_s),
        segment_size_bytes=retention.take("segment-size", size_bytes, _DEFAULT.segment_size_bytes),
        partition_size_max_bytes=partition.take(
            "max-size", size_bytes, _DEFAULT.partition_size_max_bytes
        ),
        compression=compression.take("type", compression_of, _DEFAULT.compression),
        deduplication=_deduplication(root.section("deduplication")),
    )
    for section in (root, meta, partition, retention, compression):
        section.require_empty()
    return name, spec


def compression_of(text: object) -> Compression:
    """The codecs that a word permits. Raises InvalidTopic if they do not exist here."""
    word = str(text).lower()
    if word in _UNSUPPORTED_CODECS:
        raise _fault(f"compression type {word} is not supported: any, none and zstd are")
    try:
        return Compression(word)
    except ValueError as error:
        raise _fault(f"unknown compression type: {str(text)[:100]}") from error


class _Section:
    """A mapping of the file. Values are taken out of it, so that the keys left over are unknown."""

    def __init__(self, path: str, found: object) -> None:
        if not isinstance(found, Mapping):
            raise _fault(f"{path or 'the topic file'} must be a mapping")
        self._path = path
        self._left: dict[str, object] = {}
        for key, value in found.items():
            name = str(key).replace("_", "-")
            if name in self._left:
                raise _fault(f"{self._named(name)} is given twice")
            self._left[name] = value

    def __bool__(self) -> bool:
        return bool(self._left)

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def section(self, name: str) -> "_Section":
        """The section of this name; an empty one if it is absent."""
        found = self._left.pop(name, None)
        return _Section(self._named(name), {} if found is None else found)

    def take(self, name: str, parse: Callable[[str | int], V], default: V) -> V:
        """A text or number, parsed; the default if it is absent."""
        found = self._left.pop(name, None)
        if found is None:
            return default
        if isinstance(found, float):
            found = str(found)
        if not isinstance(found, str | int):
            raise _fault(f"{self._named(name)} must be a text or a number")
        try:
            return parse(found)
        except InvalidRequest as error:
            raise _fault(f"{self._named(name)}: {error.message}") from error

    def flag(self, name: str) -> bool:
        """True or false; false if it is absent."""
        found = self._left.pop(name, None)
        if found is not None and not isinstance(found, bool):
            raise _fault(f"{self._named(name)} must be true or false")
        return bool(found)

    def rows(self, name: str) -> list["_Section"]:
        """A list of mappings."""
        found = self._left.pop(name, None)
        if not isinstance(found, list):
            raise _fault(f"{self._named(name)} must be a list")
        return [_Section(f"{self._named(name)}[{i}]", row) for i, row in enumerate(found)]

    def ids(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        found = self._left.pop(name, None)
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise _fault(f"{self._named(name)} must be a list of spu ids")
        return tuple(found)

    def require_empty(self) -> None:
        """Raises InvalidTopic if a key is left over."""
        for name in self._left:
            raise _fault(f"unknown key {self._named(name)} in the topic file")

    def _named(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _replicas(partition: _Section) -> Computed | Assigned:
    if not partition.has("maps"):
        partition.take("maps", _text, "")
        return Computed(
            partition.take("count", _whole, 1),
            partition.take("replication", _whole, 1),
            partition.flag("ignore-rack-assignment"),
        )
    for name in ("count", "replication", "ignore-rack-assignment"):
        if partition.has(name):
            raise _fault(f"partition.maps cannot be used with partition.{name}")
    rows = []
    for row in partition.rows("maps"):
        rows.append(AssignedPartition(row.take("id", _whole, -1), row.ids("replicas")))
        row.require_empty()
    return Assigned(tuple(rows))


def _deduplication(section: _Section) -> Deduplication | None:
    if not section:
        return None
    if section.has("filter"):
        raise _fault(
            "deduplication.filter is not supported: idempotent producers number their records"
        )
    bounds = section.section("bounds")
    count, age = bounds.take("count", _whole, 0), bounds.take("age", duration_s, -1)
    bounds.require_empty()
    section.require_empty()
    return Deduplication(count, None if age < 0 else age)


def _text(found: str | int) -> str:
    return str(found)


def _whole(found: str | int) -> int:
    if type(found) is not int:
        raise InvalidRequest(f"{str(found)[:100]!r} is not a whole number")
    return found


def _fault(why: str) -> InvalidTopic:
    return InvalidTopic(why, remedy="correct the topic file", why=why)
