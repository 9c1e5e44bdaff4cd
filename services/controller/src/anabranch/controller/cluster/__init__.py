"""The controller's part in the cluster: members, leader, placements, buckets, constants."""
