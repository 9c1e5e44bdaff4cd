"""How commands are decided: which kind of aggregate takes each, and what it takes into account."""
