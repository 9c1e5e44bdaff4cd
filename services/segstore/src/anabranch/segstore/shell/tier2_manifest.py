"""Creating a manifest, once, whatever the outcome of a put.

A put may end without a known outcome (a time limit, a lost connection). The manifest is then put
again under the same name with the same bytes: whoever reads those bytes under the name knows
that the object is its own, because they hold the owner's nonce.
"""

from anabranch.common.errors import ObjectExists, OutcomeUnknown
from anabranch.common.storage.objects import read_manifest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest, encode_manifest
from anabranch.common.tier2.names import manifest_name

PUT_ATTEMPTS_MAX = 3


async def create_manifest(storage: ChunkStorage, manifest: Manifest) -> Manifest | None:
    """Create the manifest: None if it is there and ours, else the manifest that has its number.

    Raises DiskFailed, and OutcomeUnknown after `PUT_ATTEMPTS_MAX` attempts: the caller must
    then open again, it cannot know whether the manifest will appear.
    """
    name = manifest_name(manifest.container, manifest.number)
    data = encode_manifest(manifest)
    for attempt in range(1, PUT_ATTEMPTS_MAX + 1):
        try:
            await storage.put_new(name, [data])
        except ObjectExists:
            found = await read_manifest(storage, manifest.container, manifest.number)
            return None if found == manifest else found
        except OutcomeUnknown:
            if attempt == PUT_ATTEMPTS_MAX:
                raise
        else:
            return None
    raise AssertionError("the last attempt returns or raises")
