"""How far groups have read: committed offsets, and ``config/consumerOffset.json`` made from evidence.

``lag``      committed offsets beside the ends of their queues, as the store has them
``copies``   what still says how far groups have read: the file, its ``.bak``, a database, those of replicas
``ranges``   where each queue begins and ends, and which of its messages is the first at or after a time
``plan``     the file: one number for each group and queue, its source, and what a report says of it
"""
