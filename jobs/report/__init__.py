"""``report``: facts by SQL (``views`` and functions), and a ``page`` with plots."""
