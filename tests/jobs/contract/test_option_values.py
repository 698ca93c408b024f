"""Values of options, as the command line and the data source read them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from jobs.contract import option_values as ov
from jobs.contract.option_values import JUDGED, MADE
from storeformat.queues.topic_filter import TopicFilter


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("~", "HOME"),
        ("~/store", "HOME/store"),
        ("~other/x", "~other/x"),
        ("file:/data/x", "file:///data/x"),
        ("file:///data/x", "file:///data/x"),
        ("s3://bucket/~/x", "s3://bucket/~/x"),
        ("a b/\U0001f980/", "a b/\U0001f980/"),
    ],
)
def test_paths(text: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert ov.path(text) == meant.replace("HOME", "/home/me")
    assert ov.paths(f"{text},b") == (meant.replace("HOME", "/home/me"), "b")


@pytest.mark.parametrize(
    "text",
    ["1626079567052", "2021-07-12T08:46:07.052Z", "2021-07-12T08:46:07.052+00:00", "2021-07-12 10:46:07.052+02:00"],
)
def test_times(text: str) -> None:
    assert ov.milliseconds(text) == 1626079567052


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (ov.natural, "0", 0),
        (ov.natural, "17", 17),
        (ov.positive, "1", 1),
        (ov.name, " n ", " n "),
        (ov.milliseconds, "-5", -5),
        (ov.milliseconds, "1969-12-31T23:59:59.999Z", -1),
        (ov.paths, " a , ~x,, b ", ("a", "~x", "b")),
        (ov.path, "C:", "C:"),
        (ov.path, "a/b:", "a/b:"),
        (ov.setting, " maxIndexNum = 7=8 ", ("maxIndexNum", "7=8")),
        (ov.topic_filter, "T:3", TopicFilter("T", 3)),
        (ov.topic_filter, "%LMQ%a:b", TopicFilter("%LMQ%a:b")),
        (ov.time_zone, "Asia/Tokyo", "Asia/Tokyo"),
        (ov.artefacts, " index ,consumequeue", ("consumequeue", "index")),
        (ov.artefacts, ",".join(reversed(JUDGED)), JUDGED),
        (ov.rebuilt_artefacts, ",".join(reversed(MADE)), MADE),
    ],
)
def test_values(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


NEITHER = " is neither milliseconds since 1970 nor a time with its zone, such as 2026-01-31T23:59:59.123Z"


@pytest.mark.parametrize(
    ("read", "text", "what"),
    [
        (ov.natural, "x", "'x' is not a whole number"),
        (ov.natural, "-1", "-1 is negative"),
        (ov.natural, str(1 << 63), f"{1 << 63} is too large"),
        (ov.positive, "0", "0 is too small"),
        (ov.positive, "1.5", "'1.5' is not a whole number"),
        (ov.milliseconds, "2021-07-12T08:46:07", "'2021-07-12T08:46:07'" + NEITHER),
        (ov.milliseconds, "soon", "'soon'" + NEITHER),
        (ov.path, " ", "the path is empty"),
        (ov.path, "s3://", "s3:// is incomplete: it has a scheme and no path"),
        (ov.path, "hdfs:/x", "hdfs:/x has one slash after its scheme; a URI has two, a local path ./ first"),
        (ov.paths, " , ", "the path is empty"),
        (ov.paths, "a,s3:///", "s3:/// is incomplete: it has a scheme and no path"),
        (ov.name, " ", "the name is empty"),
        (ov.setting, "maxIndexNum", "'maxIndexNum' is not name=value"),
        (ov.setting, "=5", "'=5' is not name=value"),
        (ov.setting, "maxIndexNun=5", "brokers know no setting 'maxIndexNun'; is it maxIndexNum?"),
        (
            ov.setting,
            "enableLm=5",
            "brokers know no setting 'enableLm'; is it enableLmq or enableLmqStats or enableLmqQuota?",
        ),
        (ov.setting, "qqqqqqqqqq=5", "brokers know no setting 'qqqqqqqqqq'"),
        (ov.topic_filter, " ", "a topic needs a name"),
        (ov.topic_filter, "T:x", "'T:x' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.topic_filter, "T::1", "'T::1' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.time_zone, "Mars/Phobos", "Mars/Phobos: no such time zone"),
        (ov.time_zone, "../etc", "../etc: no such time zone"),
        (ov.topic_filter, "a/b", "'a/b' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.topic_filter, "..:1", "'..:1' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.topic_filter, "a\0", r"'a\x00' is not a topic; one queue is TOPIC:QUEUE"),
        (ov.artefacts, "index,b,a", "'a' is not one of consumequeue, index, checkpoint, consumer-offsets"),
        (ov.artefacts, "", "'' is not one of consumequeue, index, checkpoint, consumer-offsets"),
    ],
)
def test_what_is_wrong_is_said(read: Callable[[str], Any], text: str, what: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        read(text)
    assert str(caught.value) == what
