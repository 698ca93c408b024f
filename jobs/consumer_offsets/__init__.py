"""Committed offsets: ``lag``, ``copies``, ``ranges`` of queues, and the ``plan`` of a rebuilt consumerOffset.json."""
