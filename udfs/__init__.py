"""What runs inside a Spark task: storeformat and pyarrow, no SparkSession. Mappers are frozen dataclasses."""
