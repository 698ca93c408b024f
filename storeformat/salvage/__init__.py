"""Survivors of damage, and repair of a damaged log. Bad bytes never raise. Offsets are log offsets, times in ms."""
