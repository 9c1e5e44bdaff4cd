"""Tier 2 from its owner's view: flush plans, fences, the changes of a cut (pure)."""
