"""Where streams lie: in the stores or in tier 2, behind one port."""
