"""Which stores a path with placeholders, or a file, means."""

from __future__ import annotations

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


PLACES = "put {cluster} into --store, or give a line"


@pytest.mark.parametrize(
    ("given", "text", "advice"),
    [
        ({"broker": "x"}, "2 brokers of this name: c/x", "--broker '{broker}' takes the names of directories"),
        ({"repair_from": 0}, "--repair-from applies to one log: name one store", None),
        ({"until_offset": 0}, "--until-offset applies to one log: name one store", None),
        ({"commitlog": ("/log",)}, "2 brokers would share /log", "put {broker} into it"),
        ({"commitlog": ("/l/{broker}",), "replicas": ("/r",)}, "2 brokers would share /r", "put {broker} into it"),
        ({"cluster": "{cluster}"}, "{cluster}: {cluster} has no value", PLACES),
        ({"broker_conf": "/{cluster}/b.conf"}, None, None),
        ({"cluster": "", "broker_conf": "/{cluster}/b.conf"}, "ROOT/east/a/store has no cluster",
         "give it in its line, or as --cluster"),
        ({"stores": "f"}, "--store and --stores: give one of them", None),
    ],
)  # fmt: skip
def test_what_is_refused(snapshots: Path, given: dict[str, Any], text: str | None, advice: str | None) -> None:
    options = load_options(store=f"{snapshots}/east/{{broker}}/store", **given)
    if text is None:
        assert [member.options.broker_conf for member in members_of(options)] == ["/c/b.conf"] * 2
        return
    with pytest.raises(UsageError) as error:
        members_of(options)
    assert (str(error.value), error.value.advice) == (text.replace("ROOT", str(snapshots)), advice)


@pytest.mark.parametrize(("given", "option"), [({"from_offset": 0}, "--from"), ({"limit": 1}, "--limit")])
def test_inspect_shows_records_of_one_log(given: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option} applies to one log: name one store$"):
        members_of(InspectOptions(store="/{broker}", **given))


def test_what_brokers_would_share_one_may_have(snapshots: Path) -> None:
    (member,) = members_of(VerifyOptions(store=f"{snapshots}/west/{{broker}}", commitlog=("/l",), replicas=("/r",)))
    assert (member.options.commitlog, member.options.replicas) == (("/l",), ("/r",))


COLUMNS = "store,cluster,broker,broker.conf"


@pytest.mark.parametrize(
    ("content", "text", "advice"),
    [
        ("# none\n", "FILE names no store", f"a line each: {COLUMNS}"),
        ("store,cluster\n", "FILE names no store", f"a line each: {COLUMNS}"),
        ("/a,c,b,f,more\n", "FILE: /a,c,b,f,more", f"a line has {COLUMNS}"),
        (",c,b\n", "FILE: ,c,b", f"a line has {COLUMNS}"),
        ("/a,c\n", "/a has no broker", "give it in its line, or as --broker"),
        ("/a,c,a\n/a,c,b\n", "2 lines with this store: /a", "name each store once"),
        ("/a,c,a\n/x/../a,c,b\n", "2 lines with this store: /a", "name each store once"),
        ("/a,c,a\n/b,c,a\n/d,c,a\n", "3 brokers of this name: c/a",
         "--broker '{broker}' takes the names of directories"),
    ],
)  # fmt: skip
def test_files_that_say_nothing(tmp_path: Path, content: str, text: str, advice: str) -> None:
    file = tmp_path / "stores"
    file.write_text(content)
    options = load_options(stores=str(file), cluster="", broker="")
    with pytest.raises(UsageError) as error:
        members_of(options)
    assert (str(error.value), error.value.advice) == (text.replace("FILE", str(file)), advice)


def test_names_that_are_not_all_known_may_be_the_same(tmp_path: Path) -> None:
    """A broker without a name is its store; one of another cluster is another one."""
    (tmp_path / "stores").write_text("/a,c\n/b,c\n/d,c,x\n/e,,x\n/f,g,x\n")
    found = members_of(VerifyOptions(store="", stores=str(tmp_path / "stores")))
    assert [member.name for member in found] == ["c", "c", "c/x", "x", "g/x"]


def test_a_file_of_any_editor(tmp_path: Path) -> None:
    """With a mark at its beginning, letters of another code page, ends of lines of Windows, and indented lines."""
    file = tmp_path / "stores"
    file.write_bytes(b"\xef\xbb\xbfstore,cluster\r\n  # old\r\n   \r\n /s/\xe4 ,c\r\n/s/b\r\n")
    found = members_of(VerifyOptions(store="", stores=str(file)))
    assert [(member.options.store, member.cluster, member.broker) for member in found] == [
        ("/s/\ufffd", "c", None), ("/s/b", None, None),
    ]  # fmt: skip


def test_nothing_is_there(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/absent/{{broker}}"
    with pytest.raises(MissingInput) as error:
        members_of(VerifyOptions(store=pattern))
    assert str(error.value) == f"no directory matches the placeholders ({pattern})"


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
