"""The proof that a store has the join token of its cluster. Pure.

The token is a secret that an operator gives to controllers and stores. Records are readable for
everybody on the NATS servers, so a store does not write the token into its record, but a code made
from it, its node id and its session: another store cannot use the code for itself.
"""

import hashlib
import hmac


def join_proof(token: str, node_id: str, session: str) -> str:
    """The proof for the record of this node and session; "" without a token."""
    if not token:
        return ""
    said = f"{node_id}/{session}".encode()
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()


def may_join(token: str, node_id: str, session: str, proof: str) -> bool:
    """Whether a store with this proof may join; without a token, every store may."""
    return not token or _same(join_proof(token, node_id, session), proof)


def peer_proof(token: str, challenge: str, sender: str, receiver: str) -> str:
    """The proof of one store to another that it has the token; "" without a token.

    `challenge` was drawn by the receiver for this connection, so the proof cannot be used again.
    """
    if not token:
        return ""
    said = f"peer/{challenge}/{sender}/{receiver}".encode()
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()


def is_peer(token: str, challenge: str, sender: str, receiver: str, proof: str) -> bool:
    """Whether the sender of this proof has the token; without a token, every sender passes."""
    return not token or _same(peer_proof(token, challenge, sender, receiver), proof)


def _same(expected: str, proof: str) -> bool:
    """Compare in a time that does not depend on the proof, which may hold any characters."""
    return hmac.compare_digest(expected.encode(), proof.encode(errors="replace"))
