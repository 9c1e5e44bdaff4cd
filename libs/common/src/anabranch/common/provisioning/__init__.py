"""The port of provisioners, which run the processes of managed SPUs."""
