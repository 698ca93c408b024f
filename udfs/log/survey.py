"""Survivors of damage, in a Spark task for each segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storeformat.log.chain_walk import BlockWindow
from storeformat.record.decode import DecodeRules
from storeformat.salvage.survey import Broken, Survey, survey
from storeformat.storage import files


@dataclass(frozen=True)
class SurveyTask:
    """Surveys places where chains broke off."""

    decode_rules: DecodeRules
    keep_crc_failures: bool = False

    def __call__(self, places: Iterator[Broken]) -> Iterator[Survey]:
        for place in places:
            with files.RangeReader(place.segment.path) as reader:
                window = BlockWindow(reader, place.segment)
                yield survey(window, place, self.decode_rules, keep_crc_failures=self.keep_crc_failures)
