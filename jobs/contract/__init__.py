"""Interface to users: ``options`` (``option_values``), ``report`` and its ``reporter``."""
