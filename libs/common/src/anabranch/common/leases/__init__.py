"""Claims that end by themselves: who of several processes shall do a piece of work."""
