"""Which stores a file means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.cli.fleet_stores import members_of
from jobs.contract.options import InspectOptions, LoadOptions, VerifyOptions
from storeformat.errors import UsageError


def load_options(**given: Any) -> LoadOptions:
    return LoadOptions(**{"table": "/t", "cluster": "c", "broker": "", "store": "", **given})


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stores.csv"
    file.write_text(
        "store, cluster, broker, broker.conf\n# the old ones\n\n/s/a, east, a, /etc/a.conf\n"
        '"/s/b, c",,b\ns3://bucket/x,west,a,\n'
    )
    found = members_of(load_options(stores=str(file), cluster="c", broker_conf="/etc/b.conf", metrics="m"))
    rows = [
        (member.options.store, member.options.cluster, member.options.broker, member.options.broker_conf)
        for member in found
    ]
    assert rows == [
        ("/s/a", "east", "a", "/etc/a.conf"),
        ("/s/b, c", "c", "b", "/etc/b.conf"),
        ("s3://bucket/x", "west", "a", "/etc/b.conf"),
    ]
    assert {(member.options.stores, member.options.metrics) for member in found} == {(None, None)}


def test_stores_without_names_are_called_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "stores").write_text("/s/a\n/s/b\n")
    assert [member.name for member in members_of(VerifyOptions(store="", stores=str(tmp_path / "stores")))] == [
        "/s/a", "/s/b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text", "advice"),
    [
        ({"broker": "x"}, "2 brokers of this name: c/x", "name each broker in its line"),
        ({"repair_from": 0}, "--repair-from applies to one log: name one store", None),
        ({"until_offset": 0}, "--until-offset applies to one log: name one store", None),
        ({"store": "/s"}, "--store and --stores: give one of them", None),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, Any], text: str, advice: str | None) -> None:
    (tmp_path / "stores").write_text("/s/a\n/s/b\n")
    with pytest.raises(UsageError) as error:
        members_of(load_options(stores=str(tmp_path / "stores"), **given))
    assert (str(error.value), error.value.advice) == (text, advice)


@pytest.mark.parametrize("name", ["commitlog", "replicas"])
def test_several_brokers_share_no_path(tmp_path: Path, name: str) -> None:
    file, given = tmp_path / "stores", {name: ("/p",)}
    file.write_text("/s/a\n")
    (member,) = members_of(VerifyOptions(store="", stores=str(file), **given))
    assert getattr(member.options, name) == ("/p",)
    file.write_text("/s/a\n/s/b\n")
    with pytest.raises(UsageError, match=r"^2 brokers would share /p$") as error:
        members_of(VerifyOptions(store="", stores=str(file), **given))
    assert error.value.advice == "name one store; where its log is, the broker.conf of a line can say, too"


@pytest.mark.parametrize(("given", "option"), [({"from_offset": 0}, "--from"), ({"limit": 1}, "--limit")])
def test_inspect_shows_records_of_one_log(given: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option} applies to one log: name one store$"):
        members_of(InspectOptions(store="", stores="f", **given))


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
        ("/a,c,a\n/b,c,a\n/d,c,a\n", "3 brokers of this name: c/a", "name each broker in its line"),
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
