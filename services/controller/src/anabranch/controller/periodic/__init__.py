"""Work that a controller does periodically, beside commands and queries."""
