"""Delta's jars are the published ones, wherever they came from."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest
from support.fake_java import executable
from support.patching import stand_in

from jobs.setup import delta_jars, environment
from jobs.setup.setup_steps import LeftOut, SetupError, StepProgress

VERSIONS = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a directory with two jars, which are all that is needed."""
    directory = tmp_path / "given"
    directory.mkdir()
    sums = tmp_path / "sums"
    (directory / "delta-spark_x.jar").write_bytes(b"the published bytes")
    (directory / "delta-storage.jar").write_bytes(b"of another")
    (directory / "unrelated.jar").write_bytes(b"left there")
    needed = [directory / "delta-spark_x.jar", directory / "delta-storage.jar"]
    sums.write_text(
        "# why\n" + "".join(f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in needed)
    )
    monkeypatch.setattr(delta_jars, "SUMS", sums)
    monkeypatch.delenv(delta_jars.JARS, raising=False)
    return directory


def fetch(tmp_path: Path) -> str:
    (tmp_path / "venv").mkdir(exist_ok=True)
    return delta_jars.fetch(tmp_path / "venv", VERSIONS, StepProgress(tmp_path / "log"))


def there(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "venv").rglob("*"))


def maven_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    executable(
        tmp_path / "bin" / "mvn",
        f"#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) cd ${{word#*=}};; esac; done\n{does}\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")


def test_from_a_directory_come_those_that_are_needed(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(delta_jars.JARS, str(jars))
    assert fetch(tmp_path).startswith("2 of Delta")
    assert there(tmp_path) == ["delta-spark_x.jar", "delta-storage.jar", "jars"]


def test_a_tampered_jar_of_a_directory_is_refused(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (jars / "delta-storage.jar").write_bytes(b"of an attacker")
    monkeypatch.setenv(delta_jars.JARS, str(jars))
    with pytest.raises(SetupError, match=r"delta-storage\.jar is not the published one: SHA-256 found "):
        fetch(tmp_path)
    assert there(tmp_path) == []


def test_a_tampered_jar_that_maven_takes_for_good_is_refused(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven_that(tmp_path, monkeypatch, f"cp {jars}/delta-s* . && echo evil > delta-storage.jar")
    with pytest.raises(SetupError, match=r"delta-storage\.jar is not the published one"):
        fetch(tmp_path)
    maven_that(tmp_path, monkeypatch, f"cp {jars}/* .")
    with pytest.raises(SetupError, match=r"unrelated.jar is not the published one.*no such jar"):
        fetch(tmp_path)
    assert there(tmp_path) == []
    maven_that(tmp_path, monkeypatch, f"cp {jars}/delta-s* .")
    fetch(tmp_path)
    assert there(tmp_path) == ["delta-spark_x.jar", "delta-storage.jar", "jars"]


def test_maven_is_told_to_end_at_a_wrong_checksum(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven_that(
        tmp_path,
        monkeypatch,
        'case $* in *--strict-checksums*) echo "[ERROR] Checksum validation failed"; esac; exit 1',
    )
    with pytest.raises(SetupError, match="a jar is not the published one: Checksum validation failed"):
        fetch(tmp_path)


def test_without_maven_or_its_repository_the_rest_goes_on(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven_that(tmp_path, monkeypatch, 'echo "[ERROR] Failed: no route to host"; exit 1')
    with pytest.raises(LeftOut, match="Maven could not fetch them"):
        fetch(tmp_path)
    assert not delta_jars.need_spark()
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/mvn").exists() else "/nowhere")
    assert delta_jars.need_spark()
    executable(tmp_path / "venv" / "bin" / "python", "#!/bin/sh\necho no route to host; exit 1\n")
    with pytest.raises(LeftOut, match="Spark could not fetch them"):
        fetch(tmp_path)
    assert there(tmp_path) == ["bin", "python"]


def test_jars_that_spark_fetches_are_the_published_ones(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = tmp_path / "venv" / "bin" / "python"
    stand_in(monkeypatch, delta_jars, "shutil", which=lambda name: None)
    copies = "for jar in delta-spark_x.jar delta-storage.jar; do cp {0}/$jar $4/jars/io.delta_$jar; done"
    executable(
        spark, f"#!/bin/sh\nmkdir $4/jars\n{copies.format(jars)}\necho evil > $4/jars/io.delta_delta-storage.jar\n"
    )
    with pytest.raises(SetupError, match=r"delta-storage\.jar is not the published one"):
        fetch(tmp_path)
    assert not (tmp_path / "venv" / "jars").exists()
    executable(spark, f"#!/bin/sh\nmkdir $4/jars\n{copies.format(jars)}\n")
    assert fetch(tmp_path).startswith("2 of Delta")


def test_what_is_said_of_jars_that_did_not_come(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    cases: list[tuple[str, type[Exception], str, str | None]] = [
        ("exit 0", LeftOut, f"Maven could not fetch them ({log}): load and report need a --setup that can", None),
        ("echo '[ERROR] x'; echo '[ERROR] Failed: CHECKSUM bad'; echo '[ERROR] y'; exit 1", LeftOut, "", None),
        ("echo '[ERROR] Failed: CHECKSUM bad'; exit 1", SetupError,
         "a jar is not the published one: Failed: CHECKSUM bad", f"Maven's output: {log}"),
        (f"cp {jars}/delta-spark* .", SetupError, "lacks delta-storage.jar", "conf/sums says which jars are needed"),
    ]  # fmt: skip
    for does, kind, text, advice in cases:
        log.unlink(missing_ok=True)
        maven_that(tmp_path, monkeypatch, does)
        with pytest.raises(kind) as error:
            fetch(tmp_path)
        assert str(error.value).endswith(text)
        assert getattr(error.value, "advice", None) == advice
    monkeypatch.setenv(delta_jars.JARS, str(tmp_path))
    with pytest.raises(SetupError) as lacking:
        fetch(tmp_path)
    assert str(lacking.value) == f"ROCKETMQ_STORE_SPARK_JARS: {tmp_path} lacks delta-spark_x.jar"
    assert lacking.value.advice == "conf/sums says which jars are needed"
    assert there(tmp_path) == []


def test_what_maven_is_told(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    does = f'echo "$@" > {told}; cp {jars}/delta-s* .; echo "Downloaded from c: http://h/p/a.jar (1 kB)"'
    maven_that(tmp_path, monkeypatch, does)
    monkeypatch.setenv("HOME", str(tmp_path))
    progress = StepProgress(tmp_path / "log")
    (tmp_path / "venv").mkdir()
    assert delta_jars.fetch(tmp_path / "venv", VERSIONS, progress) == "2 of Delta, 0 MB, each with its SHA-256"
    words = told.read_text().split()
    assert words[:5] == [
        "--batch-mode",
        "--strict-checksums",
        "--file",
        str(delta_jars.POM),
        "dependency:copy-dependencies",
    ]
    assert words[5:7] == ["-DincludeScope=runtime", "-DincludeGroupIds=io.delta,io.unitycatalog"]
    assert words[7].startswith(f"-DoutputDirectory={tmp_path}/venv/jars.")
    assert words[8:] == ["-Dspark.minor=4.2", "-Ddelta.version=4.4.0"]
    assert progress.text == "a.jar"
    monkeypatch.setenv("HOME", "")
    assert fetch(tmp_path).startswith("2 of Delta")
    assert told.read_text().split()[10:] == [f"-Dmaven.repo.local={tmp_path}/venv/m2"]


def test_what_spark_is_told(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, delta_jars, "shutil", which=lambda name: None)
    told = tmp_path / "told"
    executable(
        tmp_path / "venv" / "bin" / "python",
        f'#!/bin/sh\nfor word in "$@" "$PYTHONPATH"; do echo "$word"; done > {told}\necho "[ERROR] no"; exit 1\n',
    )
    progress = StepProgress(tmp_path / "log")
    with pytest.raises(LeftOut) as left:
        delta_jars.fetch(tmp_path / "venv", VERSIONS, progress)
    assert str(left.value) == f"Spark could not fetch them ({progress.log}): load and report need a --setup that can"
    said = told.read_text()
    assert said.startswith(f"-c\n{delta_jars.RESOLVING}\nio.delta:delta-spark_4.2_2.13:4.4.0\n{tmp_path}/venv/jars.")
    assert said.endswith(f"\n{delta_jars.ROOT}\n")
    assert progress.text == "with Spark"


def test_a_directory_that_is_named_needs_neither_spark_nor_maven(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    stand_in(monkeypatch, delta_jars, "shutil", which=asked.append)
    assert delta_jars.need_spark()
    assert asked == ["mvn"]
    monkeypatch.setenv(delta_jars.JARS, str(jars))
    assert not delta_jars.need_spark()


def test_what_is_no_published_jar_is_shown_by_its_sums(tmp_path: Path, jars: Path) -> None:
    (jars / "unrelated.jar").unlink()
    delta_jars.check(jars)
    (jars / "delta-storage.jar").write_bytes(b"x" * (3 << 20))
    found = hashlib.sha256(b"x" * (3 << 20)).hexdigest()
    expected = hashlib.sha256(b"of another").hexdigest()
    with pytest.raises(SetupError) as error:
        delta_jars.check(jars)
    assert str(error.value) == (
        f"delta-storage.jar is not the published one: SHA-256 found {found}, expected {expected} ({jars})"
    )
    assert error.value.advice == "it was changed on its way, or is of another version: check where it came from"


@pytest.mark.slow
def test_spark_finds_the_jars_without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the public repository; what Maven has left on this machine is out of sight."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    executable(tmp_path / "venv" / "bin" / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"-Duser.home={tmp_path}")
    which = shutil.which
    stand_in(monkeypatch, delta_jars, "shutil", which=lambda name: None if name == "mvn" else which(name))
    versions = environment.pinned_versions()
    assert delta_jars.fetch(tmp_path / "venv", versions, StepProgress(tmp_path / "log")).startswith("7 of Delta")


def test_the_sums_are_those_of_the_jars_in_use() -> None:
    names = delta_jars.known_sums()
    assert "delta-spark_4.2_2.13-4.4.0.jar" in names
    assert all(len(digest) == 64 for digest in names.values())
