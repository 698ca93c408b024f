"""``config/`` of a store: files about topics, groups and timers."""
