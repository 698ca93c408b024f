"""Interface to users: ``options`` (``option_values``), ``report`` (``verdict``, ``reporter``), ``metrics``,
``commands``.
"""
