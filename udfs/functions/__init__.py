"""SQL functions: ``scalar``; bodies of the trace topic: ``traces``."""
