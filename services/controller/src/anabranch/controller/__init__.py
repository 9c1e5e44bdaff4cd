"""The controller: decides changes of the metadata and performs the work that follows."""
