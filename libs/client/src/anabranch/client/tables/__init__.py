"""Key-value tables: versioned entries by key, atomic batches, iteration in key order, watches."""
