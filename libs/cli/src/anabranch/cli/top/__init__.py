"""The command `anabranch top`: a live view of the cluster's streams, groups, members and work."""
