"""One record: its bytes as columns, and what it becomes.

``decode`` makes columns; ``message_ids`` (hosts, too) and ``bodies`` are values in them; ``dispatch`` makes units
of queues, light ones too, and index keys, and names the messages that wait in a system topic.
"""
