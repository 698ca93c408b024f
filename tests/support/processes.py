"""Which processes of a session are still there."""

from __future__ import annotations

import subprocess


def processes_of(session: int) -> dict[int, str]:
    """The command lines of a session's processes, by their ids."""
    listed = subprocess.run(["ps", "-eo", "sid,pid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return {int(row[1]): row[3] for row in rows if row[0] == str(session) and not row[2].startswith("Z")}
