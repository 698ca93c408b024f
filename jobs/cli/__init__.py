"""The command line (``command_line``, ``arguments``), its ``standard_streams``, and ``demo``, which runs other jobs."""
