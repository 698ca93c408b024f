"""Questions to one store: ``query`` and ``inspection`` are jobs; ``offline_store`` answers as a broker would;
``explain``
says why a key is not found.
"""
