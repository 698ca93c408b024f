"""Plans and entry points: the only layer that sees a SparkSession. One module per job, one command line for all."""
