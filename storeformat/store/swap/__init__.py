"""Artefacts of a store replaced, all or nothing: ``swap`` does it, ``swap_journal`` says by what, and how far."""
