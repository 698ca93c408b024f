"""A sample of the frozen answers; ``.ci/answers`` compares all of them."""

from __future__ import annotations

import pytest
from answers.frozen_answers import answers_of, frozen, origins, sample

SAMPLE = sample(40, "daily")


@pytest.mark.thorough
@pytest.mark.parametrize("origin", [one for one in origins() if one.name in SAMPLE], ids=lambda one: one.name)
def test_jobs_answer_as_before(origin) -> None:
    assert answers_of(origin, SAMPLE[origin.name]) == frozen(origin.name, SAMPLE[origin.name])
