"""What fastjson reads. The expectations are what fastjson 1.2.83 and fastjson2 2.0.59 answered."""

from __future__ import annotations

import sys
import time

import pytest

from storeformat.store.config import fastjson
from storeformat.store.config.consumer_offsets import offsets_before_tear

ACCEPTED = {
    '{"offsetTable":{"t@g":{0:5,1:6\n\t\t}}}': {"offsetTable": {"t@g": {"0": 5, "1": 6}}},
    '{"offsetTable":{"t@g":{0:5}}}\0\0\0': {"offsetTable": {"t@g": {"0": 5}}},
    "{'offsetTable':{'t@g':{0:5}}}": {"offsetTable": {"t@g": {"0": 5}}},
    '{"offsetTable":{"t@g":{0:5,},},}': {"offsetTable": {"t@g": {"0": 5}}},
    '{"offsetTable":{"t@g":{"0":"5"}}}': {"offsetTable": {"t@g": {"0": "5"}}},
    '{"offsetTable":{"t@g":{0:5}}/*c*/}': {"offsetTable": {"t@g": {"0": 5}}},
    '{"a":{0:1},"a":{0:2}}': {"a": {"0": 2}},
    '{"{0:5,}":"a,}/*b*/"}': {"{0:5,}": "a,}/*b*/"},
    "null": None,
    r'{"a\ud800":["\udbff","\uD83D\ude00","\\ud800"]}': {"a?": ["?", "\U0001f600", r"\ud800"]},
    "[1e999,-1e999]": [sys.float_info.max, -sys.float_info.max],
}
REFUSED = ("\0\0\0\0", "   ", "\n", '{"a":1}xyz', '{"a":{0:5}', "hello", '{"a":x}', '{"a":NaN}', "{a:1}", '{"a":1}X')


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert fastjson.parse(text) == ACCEPTED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (json's error is one)
        fastjson.parse(text)


def test_no_cut_is_accepted() -> None:
    text = '{\n\t"dataVersion":{\n\t\t"counter":5\n\t},\n\t"offsetTable":{"A@g":{0:12,1:13\n\t\t},"B@g":{0:7\n\t\t}}\n}'
    assert fastjson.parse(text)
    for length in range(len(text)):
        with pytest.raises(ValueError):  # noqa: PT011
            fastjson.parse(text[:length])


@pytest.mark.parametrize(
    "text", ["1" * 40_000, "/* " * 40_000, '"' + '\\"' * 40_000, "'" + "\\'" * 40_000, "@" * 40_000]
)
def test_no_text_takes_the_square_of_its_length(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ValueError):  # noqa: PT011
        fastjson.parse('{"a":' + text + " x")
    offsets_before_tear('{"offsetTable":{"' + text)
    offsets_before_tear('{"lmqOffsetTable":{"' + text)
    assert time.process_time() - begin < 1
