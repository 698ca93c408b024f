"""The ``command_line``, and ``demo`` and ``recover``, which run other jobs."""
