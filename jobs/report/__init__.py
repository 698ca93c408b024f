"""``report``: ``facts`` by SQL (``views``, ``functions``, ``data_size``), and a ``page`` with ``plots``."""
