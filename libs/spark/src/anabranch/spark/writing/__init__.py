"""The sink: tasks write parts of one keyed transaction, and the driver commits them."""
