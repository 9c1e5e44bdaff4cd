"""The command `anabranch support-bundle`: one file with everything that helps others to help.

    parts (gather documents) ──▶ anonymity (if asked for) ──▶ redaction ──▶ archive

Every document takes this way, so no byte enters the file without redaction. A part that cannot be
gathered is noted in the manifest, and the rest goes on.
"""
