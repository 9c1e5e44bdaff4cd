"""What users tell the data source: Spark's texts → frozen values, or errors with a remedy. Pure."""
