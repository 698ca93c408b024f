"""Which Java there is, and whether Spark takes it. Must import with a bare Python."""

from __future__ import annotations

import re
import subprocess

OLDEST = 17


def version_of(java: str) -> int:
    """Major version that ``java -version`` prints; 0 if the program is missing or prints none."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(version[1]) if version else 0
