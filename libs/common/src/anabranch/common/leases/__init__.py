"""Claims that expire by themselves: they divide work among several processes."""
