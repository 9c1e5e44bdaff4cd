"""The transaction aggregate: open at first, then with one outcome for ever."""
