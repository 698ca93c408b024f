"""SQL functions: ``scalar``."""
