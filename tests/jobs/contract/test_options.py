"""Options of jobs: how a command line fills them, and what follows from them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import pytest

from jobs.contract.option_values import ARTEFACTS, JUDGED, Artefact
from jobs.contract.options import (
    JobOptions,
    PublishOptions,
    VerifyOptions,
    from_arguments,
    narrow_to_queues,
)
from storeformat.errors import UsageError
from storeformat.queues.topic_filter import TopicFilter


def test_options_that_are_required_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        from_arguments(PublishOptions, Namespace(source="s", other=1))
    assert str(caught.value) == "the following arguments are required: --store, --rebuilt"
    found = from_arguments(PublishOptions, Namespace(store="s", rebuilt="r", other=1, dry_run=True))
    assert found == PublishOptions(store="s", rebuilt="r", dry_run=True)


def test_a_name_of_several_words_is_shown_as_it_is_typed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class OwnOptions(JobOptions):
        two_words: str

    with pytest.raises(UsageError, match=r"^the following arguments are required: --two-words$"):
        from_arguments(OwnOptions, Namespace())
    assert from_arguments(OwnOptions, Namespace(two_words="a")).two_words == "a"


TOPICS = (TopicFilter("T"),)


@pytest.mark.parametrize(
    ("topics", "only", "narrowed"),
    [
        ((), ARTEFACTS, ARTEFACTS),
        ((), ("index",), ("index",)),
        (TOPICS, ARTEFACTS, ("consumequeue",)),
        (TOPICS, JUDGED, ("consumequeue",)),
        (TOPICS, ("consumequeue",), ("consumequeue",)),
    ],
)
def test_a_selection_of_topics_means_their_queues(
    topics: tuple[TopicFilter, ...], only: tuple[Artefact, ...], narrowed: tuple[Artefact, ...]
) -> None:
    given = VerifyOptions(store="/s", topics=topics, only=only, quiet=True)
    assert narrow_to_queues(given) == VerifyOptions(store="/s", topics=topics, only=narrowed, quiet=True)


@pytest.mark.parametrize("only", [("index",), ("consumequeue", "index"), ("checkpoint",), ("consumer-offsets",)])
def test_what_belongs_to_all_topics_is_not_made_for_some(only: tuple[Artefact, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        narrow_to_queues(VerifyOptions(store="/s", topics=TOPICS, only=only))
    said = "--topic selects consume queues only: index, checkpoint and offsets belong to all topics"
    assert str(caught.value) == said
