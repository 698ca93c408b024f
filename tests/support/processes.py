"""Which processes of a session are still there."""

from __future__ import annotations

import subprocess


def processes_of(session: int) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "sid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [row[2] for row in rows if row[0] == str(session) and not row[1].startswith("Z")]
