"""The ``command_line``, its ``standard_streams``, and ``demo``, which runs other jobs."""
