"""The things of which a gateway has a bounded number: open parts, pending changes, readers."""
