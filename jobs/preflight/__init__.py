"""``preflight``: one answer before a broker is started. The rules are those of ``jobs.safety``."""
