"""One record: its bytes as columns, and what it becomes.

``decode`` makes columns; ``hosts``, ``message_ids`` and ``bodies`` are values in them; ``dispatch`` says which queue
and which keys a record gets, ``plain_dispatch`` says so of most records in one pass; ``light_queues`` adds the queues
that its properties name; ``pending`` is what a message waits for under a topic of the broker's own.
"""
