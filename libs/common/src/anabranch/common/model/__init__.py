"""Value types of the stream model: names, ids, key ranges, placement. Pure."""
