"""Which stores a path with placeholders, or a file, means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.fleet_stores import members_of
from jobs.contract.options import InspectOptions, LoadOptions, VerifyOptions
from storeformat.errors import MissingInput, UsageError
from storeformat.storage import files


def load_options(**given: Any) -> LoadOptions:
    return LoadOptions(**{"table": "/t", "cluster": "c", "broker": "{broker}", "store": "", **given})


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    """Returns the snapshots of two clusters; that of one broker has no store."""
    for name in ("east/a/store", "east/b", "west/a/store", "west/lost+found", "west/.snapshot/store"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "east" / "notes.txt").touch()
    return tmp_path


def test_each_directory_in_place_of_a_placeholder_is_a_broker(snapshots: Path) -> None:
    options = load_options(
        store=f"{snapshots}/east/{{broker}}/store",
        broker_conf="/etc/{broker}.conf",
        commitlog=("/logs/{broker}",),
        json=True,
        metrics="m",
        report_file="r",
        settings=(("maxIndexNum", "7"),),
    )
    assert [member.options for member in members_of(options)] == [
        load_options(
            store=f"{snapshots}/east/{name}/store",
            broker=name,
            broker_conf=f"/etc/{name}.conf",
            commitlog=(f"/logs/{name}",),
            settings=(("maxIndexNum", "7"),),
        )
        for name in ("a", "b")
    ]


def test_two_placeholders(snapshots: Path) -> None:
    found = members_of(VerifyOptions(store=f"{snapshots}/{{cluster}}/{{broker}}/store"))
    assert [(member.cluster, member.broker, member.name) for member in found] == [
        ("east", "a", "east/a"), ("east", "b", "east/b"), ("west", "a", "west/a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "made", "names"),
    [
        ("store-{broker}.d", ["store-a.d", "store-b.d", "other"], ["a", "b"]),
        ("{broker}/data/{broker}", ["a/data/a", "a/data/b", "b/data"], ["a", "b"]),
        ("{cluster}-{broker}", ["prod-broker-a", "prod"], ["prod/broker-a"]),
        ("{broker}+{broker}", ["a+a", "a+b"], ["a"]),
    ],
)
def test_a_placeholder_is_part_of_a_name_or_comes_twice(
    tmp_path: Path, pattern: str, made: list[str], names: list[str]
) -> None:
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    assert [member.name for member in members_of(InspectOptions(store=f"{tmp_path}/{pattern}"))] == names


def test_a_relative_path(snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(snapshots / "east")
    found = members_of(VerifyOptions(store="{broker}/store"))
    assert [member.options.store for member in found] == ["./a/store", "./b/store"]


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stores.csv"
    file.write_text(
        "store, cluster, broker, broker.conf\n# the old ones\n\n/s/a, east, a, /etc/a.conf\n"
        '"/s/b, c",,b\ns3://bucket/x,west,a,\n'
    )
    found = members_of(load_options(stores=str(file), cluster="c", broker="", broker_conf="/etc/{cluster}/{broker}"))
    rows = [
        (member.options.store, member.options.cluster, member.options.broker, member.options.broker_conf)
        for member in found
    ]
    assert rows == [
        ("/s/a", "east", "a", "/etc/a.conf"),
        ("/s/b, c", "c", "b", "/etc/c/b"),
        ("s3://bucket/x", "west", "a", "/etc/west/a"),
    ]
    assert all(member.options.stores is None for member in found)


def test_stores_without_names_are_called_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "stores").write_text("/s/a\n/s/b\n")
    assert [member.name for member in members_of(VerifyOptions(store="", stores=str(tmp_path / "stores")))] == [
        "/s/a", "/s/b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"broker": "x"}, "2 brokers of this name: c/x"),
        ({"repair_from": 5}, "--repair-from applies to one log"),
        ({"until_offset": 5}, "--until-offset applies to one log"),
        ({"commitlog": ("/log",)}, "2 brokers would share /log"),
        ({"cluster": "{cluster}"}, "{cluster} has no value"),
        ({"stores": "f"}, "--store and --stores"),
    ],
)
def test_what_is_refused(snapshots: Path, given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        members_of(load_options(store=f"{snapshots}/east/{{broker}}/store", **given))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("# none\n", "names no store"),
        ("/a,c,b,f,more\n", "a line has|/a,c,b,f,more"),
        (",c,b\n", ",c,b"),
        ("/a,c\n", "/a has no broker"),
        ("/a,c,a\n/a,c,b\n", "2 lines with this store: /a"),
    ],
)
def test_files_that_say_nothing(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "stores").write_text(content)
    with pytest.raises(UsageError, match=text):
        members_of(load_options(stores=str(tmp_path / "stores"), cluster="", broker=""))


def test_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="no directory matches"):
        members_of(VerifyOptions(store=f"{tmp_path}/absent/{{broker}}"))


@pytest.mark.parametrize(
    ("pattern", "listed", "found"),
    [
        ("s3://b/snap/{broker}/store?region=x", "s3://b/snap?region=x", "s3://b/snap/b-0/store?region=x"),
        ("s3://b/snap/b-{broker}?region=x", "s3://b/snap?region=x", "s3://b/snap/b-0?region=x"),
        ("/b-{broker}", "/", "/b-0"),
        ("b-{broker}", ".", "./b-0"),
        ("snap/{broker}", "snap", "snap/b-0"),
    ],
)
def test_the_directory_before_the_first_placeholder_is_listed(
    pattern: str, listed: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def list_directory(path: str) -> list[files.Entry]:
        asked.append(path)
        return [files.Entry("b-0", f"{path}/b-0", -1, is_directory=True)]

    monkeypatch.setattr(files, "list_directory", list_directory)
    assert [member.options.store for member in members_of(VerifyOptions(store=pattern))] == [found]
    assert asked == [listed]
