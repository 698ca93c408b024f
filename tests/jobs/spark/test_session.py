"""A Spark that does not start is something missing, not a defect of this program."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from jobs.spark import session
from storeformat.errors import DependencyMissing

SAID = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Application application_1_1 failed 2 times
\tat org.apache.spark.deploy.yarn.Client"""


def test_the_reason_is_sparks_own() -> None:
    def context(**settings: object) -> None:
        raise Py4JError(SAID)

    with pytest.raises(DependencyMissing) as ended:
        session.started(context)  # type: ignore[arg-type]
    assert str(ended.value) == "Spark did not start: SparkException: Application application_1_1 failed 2 times"
    assert ended.value.exit_code == 69
    assert "--master" in (ended.value.advice or "")
