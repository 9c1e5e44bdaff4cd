"""Creates a manifest exactly once, even if the outcome of a put is unknown.

A put may end without a known outcome (a time limit, a lost connection). The manifest is then put
again under the same name with the same bytes. If the name is taken and its object has these bytes,
the object is the owner's own, because the bytes hold the owner's nonce.
"""

from anabranch.common.errors import ObjectExists, ObjectNotFound, OutcomeUnknown
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import manifest_name

PUT_ATTEMPTS_MAX = 3


async def create_manifest(
    storage: ChunkStorage, manifest: Manifest, data: bytes
) -> Manifest | None:
    """Create the manifest, encoded as `data`. None if it exists and is ours, else the other one.

    Raises DiskFailed, Unavailable, and OutcomeUnknown after `PUT_ATTEMPTS_MAX` attempts. The
    manifest may then still appear: the caller may repeat the same call, but must not create another
    manifest with this number.
    """
    name = manifest_name(manifest.container, manifest.number)
    for attempt in range(1, PUT_ATTEMPTS_MAX + 1):
        try:
            await storage.put_new(name, [data])
        except ObjectExists:
            try:
                found = await storage.get(name)
            except ObjectNotFound:
                continue  # a successor collected it, as the caller's list will show
            if found == data:
                return None
            return decode_manifest(found, manifest.container, manifest.number)
        except OutcomeUnknown:
            if attempt == PUT_ATTEMPTS_MAX:
                raise
        else:
            return None
    raise OutcomeUnknown(
        "tier 2 alternately reports a manifest's name as taken and as free", name=name
    )
