"""The objects of the cluster as a controller mirrors and changes them, one kind at a time."""
