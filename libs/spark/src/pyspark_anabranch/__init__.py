"""Makes `format("anabranch")` known: Spark looks into every module named pyspark_… for it."""

from anabranch.spark.source import AnabranchDataSource as DefaultSource

__all__ = ["DefaultSource"]
