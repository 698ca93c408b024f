"""Timer state made from the log: ``timerlog/`` and ``config/timercheck``; the broker makes its wheel of them.

``plan``   which messages still wait, and the units that make the broker deliver each of them once
"""
