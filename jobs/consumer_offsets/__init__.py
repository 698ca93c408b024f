"""Committed offsets: ``lag``, ``ranges`` of queues, and the ``plan`` of a rebuilt consumerOffset.json."""
