"""Interface to users: ``options``, ``report`` and its ``reporter``."""
