"""Anabranch beside other systems on the same machine, in the same rounds.

`run` performs workloads on systems, `report` shows what came out; docs/performance.md says how
to read it. Nothing here is part of what is shipped.
"""
