"""``spark-submit.sh --setup --with s3``: the jars with which Spark itself reads tables on S3, as ``report`` does.

``load`` does without them: delta-rs has a client of its own. They are 700 MB, so they come only when asked for, by
Maven, each with its SHA-256 from ``conf/s3-jars.sha256``. Standard library alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jobs.setup import delta_jars
from jobs.setup.setup_steps import SetupError, StepProgress

POM = delta_jars.ROOT / "conf" / "s3-pom.xml"
SUMS = delta_jars.ROOT / "conf" / "s3-jars.sha256"
DIRECTORY = "jars-s3"
_ARTIFACTS = "hadoop-aws,bundle,analyticsaccelerator-s3"


def fetch(venv: Path, progress: StepProgress) -> str:
    """Fills ``jars-s3/`` of the environment, whole or not at all; returns what was done. Raises SetupError without
    Maven, or if it fails.
    """
    if (venv / DIRECTORY).is_dir():
        return "up to date"
    maven = shutil.which("mvn")
    if maven is None:
        raise SetupError("the S3 connector comes by Maven, and there is no mvn", "install Maven")
    draft = Path(tempfile.mkdtemp(prefix="jars.", dir=venv))
    try:
        progress.text = "with Maven, 700 MB"
        command = [
            maven, "--batch-mode", "--strict-checksums", "--file", str(POM), "dependency:copy-dependencies",
            "-DincludeScope=runtime", f"-DincludeArtifactIds={_ARTIFACTS}", f"-DoutputDirectory={draft}",
        ]  # fmt: skip
        if not progress.run(command):
            reason = progress.errors("[ERROR] Failed", "[ERROR]").removeprefix("[ERROR]").strip()
            raise SetupError(f"Maven could not fetch the S3 connector: {reason}", f"its output: {progress.log}")
        delta_jars.check(draft, SUMS)
        draft.rename(venv / DIRECTORY)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return "3 jars, each with its SHA-256"


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns Hadoop's settings for what the environment says of S3; keys it looks up there itself."""
    found = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint:
        found |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region:
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found
