"""Locations: what a URI may show."""

from __future__ import annotations

import pytest

from storeformat.storage.locations import without_secrets


class TestWithoutSecrets:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("s3://KEY:SECRET@bucket/a@b", "s3://***@bucket/a@b"),
            ("s3://KEY:SE/C+R@ET@bucket/a", "s3://***@bucket/a"),
            ("/data/s3:/KEY:SECRET@bucket?token=SECRET", "/data/s3:/***@bucket?token=***"),
            ("S3A://:SECRET@bucket", "S3A://***@bucket"),
            ("hdfs://user:SECRET@name-node:8020/a", "hdfs://***@name-node:8020/a"),
            ("hdfs://user:5SECRET@name-node/a", "hdfs://***@name-node/a"),
            ("s3://b/x?secret_key=SECRET&region=eu&SAS=SECRET", "s3://b/x?secret_key=***&region=eu&SAS=***"),
            ("s3://b/x?endpoint_override=http://u:SECRET@h", "s3://b/x?endpoint_override=http://***@h"),
            ("no (s3://K:SECRET@b/x, 's3://b?token=SECRET'): at 1", "no (s3://***@b/x, 's3://b?token=***'): at 1"),
        ],
    )  # fmt: skip
    def test_passwords_and_keys_are_masked(self, text: str, shown: str) -> None:
        assert without_secrets(text) == shown
        assert "SECRET" not in shown

    @pytest.mark.parametrize(
        "text",
        [
            "/a/b:c@d?secret=x", "hdfs://name-node:8020/a@b", "abfs://container@account.dfs/a", "s3://bucket?region=eu",
            "file:///a/b", "://", "s3://b/x?", "at 12:30: s3://b/x",
        ],
    )  # fmt: skip
    def test_what_is_no_secret_stays(self, text: str) -> None:
        assert without_secrets(text) == text
