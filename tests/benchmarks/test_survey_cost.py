"""What a survey costs: the rest of a segment after one damaged record, against a scan of a sound segment that decodes
every record, as a survey does (a pass over plain records, which decodes none, takes less than half of that).

python -m pytest tests/benchmarks/test_survey_cost.py -m benchmark -s
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from support.in_memory import MemoryReader
from support.uniform_log import uniform_log

from storeformat.log.block_window import BlockWindow
from storeformat.log.chain_walk import chain_from
from storeformat.log.segments import Segment, Split
from storeformat.record.decode import DecodeRules
from storeformat.record.dispatch import DispatchRules
from storeformat.salvage.evidence import Neighbours
from storeformat.salvage.survey import Broken, Finding, survey
from storeformat.storage import files
from udfs.log.scan import ScanTask, scan_split

pytestmark = pytest.mark.benchmark
MOST = 2
"""Times of such a scan."""
HEAD = 88


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time, and what came of it."""
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


@pytest.mark.parametrize("message_bytes", [1000, 217])
def test_a_survey_takes_about_as_long_as_a_scan(message_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = uniform_log(64 << 20, message_bytes=message_bytes)
    first = int.from_bytes(log.data[:4], "big")
    second = int.from_bytes(log.data[first : first + 4], "big")
    damaged = log.data[:first] + b"\xa5" * HEAD + log.data[first + HEAD :]
    sound, segment = (Segment(name, 0, len(log.data)) for name in ("sound", "damaged"))
    monkeypatch.setattr(files, "RangeReader", MemoryReader)
    monkeypatch.setattr(MemoryReader, "contents", {"sound": memoryview(log.data), "damaged": memoryview(damaged)})
    window = BlockWindow(files.RangeReader("damaged"), segment)
    chain = chain_from(window, 0, DecodeRules()).finish()
    near = Neighbours({(b"bench-topic-0", 0): 1}, before=1_700_000_000_000, whole=True)
    broken = Broken(segment, chain.position, chain.defect, segment.end, near)
    scan = ScanTask("", DecodeRules(), DispatchRules(()))
    split = Split(0, sound, 0, sound.end, sound.end, 0)

    ratios = []
    for _ in range(5):
        scanning, scanned = seconds(lambda: scan_split(split, scan, lambda block: None))
        surveying, found = seconds(lambda: survey(window, broken, DecodeRules()))
        assert scanned.records == log.messages
        assert found.pieces == ((first + second, segment.end),)
        assert [(gap.begin, gap.end, gap.finding) for gap in found.gaps] == [(first, first + second, Finding.BYTES)]
        ratios.append(surveying / scanning)
    print(f"{message_bytes} bytes a message: a survey takes {min(ratios):.2f} to {max(ratios):.2f} times a scan")
    assert min(ratios) < MOST
