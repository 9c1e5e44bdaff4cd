"""Creates the NATS buckets that the store uses, and reads the number of containers."""

import structlog

from anabranch.common.adapters.jetstream_objects import create_bucket
from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable
from anabranch.segstore.shell.node.registration import container_count
from anabranch.segstore.wiring.parts import Parts

_BUCKETS = (subjects.NODES_BUCKET, subjects.PLACEMENTS_BUCKET, subjects.CLUSTER_BUCKET)

_log = structlog.get_logger(__name__)


async def learn_count(parts: Parts) -> int:
    for bucket in _BUCKETS if parts.place is None else ():
        await _create_bucket(parts, bucket)
    return await container_count(parts.objects(subjects.CLUSTER_BUCKET), parts.clock)


async def _create_bucket(parts: Parts, bucket: str) -> None:
    failures = 0
    while True:
        try:
            await create_bucket(parts.client, bucket)
            return
        except Unavailable as error:
            failures += 1
            _log.warning("a bucket cannot be created yet", bucket=bucket, error=str(error))
            await parts.clock.sleep(parts.back_off_s(failures))
