"""A store as a whole: settings, release rules, and the files beside log, queues and index.

``store`` is the value every job takes; ``recovery``: what a start dispatches, and what is deleted soon after it.
"""
