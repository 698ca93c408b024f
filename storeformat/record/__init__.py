"""One record: its bytes as columns, and what it becomes.

``decode`` makes columns; ``hosts``, ``message_ids`` and ``bodies`` are values in them; ``dispatch`` makes queue units
and index keys, of most records in one pass; ``light_queues`` adds the queues named in properties;
``pending`` is for messages that wait in a system topic.
"""
