"""Where to read or write: the options `nats_url` and `tier2`. Pure, but for an endpoints file."""

from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.nats_target import NatsTarget, nats_target
from anabranch.spark.options.texts import Texts

NAMES = ("nats_url", "tier2")


@dataclass(frozen=True, slots=True)
class TierTwo:
    """The URL of the directory or bucket that the segment stores use."""

    url: str


Place = NatsTarget | TierTwo


def parse_place(options: Texts) -> Place:
    """Raises InvalidRequest unless exactly one is given; Unavailable or Unauthorized for an
    endpoints file."""
    given = [name for name in NAMES if options.get(name)]
    if len(given) != 1:
        raise InvalidRequest(
            "a read needs exactly one source",
            remedy="give the option nats_url (from the stores; a URL or an endpoints file) or "
            "tier2 (a URL, such as file:///…)",
            given=", ".join(given) or "none",
        )
    return TierTwo(options["tier2"]) if given == ["tier2"] else nats_target(options["nats_url"])


def parse_cluster(options: Texts, what: str) -> NatsTarget:
    """The running cluster, for `what` needs one. Raises as `parse_place`."""
    if options.get("tier2") or not options.get("nats_url"):
        raise InvalidRequest(
            f"{what} needs a running cluster",
            remedy="give the option nats_url (a URL, or an endpoints file), and not tier2",
        )
    return nats_target(options["nats_url"])
