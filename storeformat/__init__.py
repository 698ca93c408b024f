"""The RocketMQ store on disk: numpy, pyarrow and the standard library; knows no Spark."""

__version__ = "0.1.0"
