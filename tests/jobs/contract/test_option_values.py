"""Values of options, as the command line and the data source read them."""

from __future__ import annotations

import pytest

from jobs.contract import option_values


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
    assert option_values.path(text) == meant.replace("HOME", "/home/me")
    assert option_values.paths(f"{text},b") == (meant.replace("HOME", "/home/me"), "b")


@pytest.mark.parametrize(
    "text",
    ["1626079567052", "2021-07-12T08:46:07.052Z", "2021-07-12T08:46:07.052+00:00", "2021-07-12 10:46:07.052+02:00"],
)
def test_times(text: str) -> None:
    assert option_values.milliseconds(text) == 1626079567052
