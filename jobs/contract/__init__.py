"""Interface to users: ``options``, and ``report`` with its reporter."""
