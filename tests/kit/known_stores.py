"""What placement looks at, as plain data: segment stores without a cluster around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.model.cluster import Endpoint, NodeRecord


@dataclass
class StoresKnown:
    """Stores with these ids, all seen; `down_since` says which are down."""

    names: Sequence[str] = ()
    complete: bool = True
    down_since: Mapping[str, int] = field(default_factory=dict)

    leased: frozenset[str] = frozenset()

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        return {name: NodeRecord(name, Endpoint("127.0.0.1", 4000), name) for name in self.names}
