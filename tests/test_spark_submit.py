"""The start script: what it finds, what it refuses, how it sets up, and for whom."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fake_java import executable, java_that_says

ROOT = Path(__file__).resolve().parent.parent
JAVA = shutil.which("java")
JAR = b"a jar of Delta's"
SUM = hashlib.sha256(JAR).hexdigest()
HERE = f"python{sys.version_info[0]}.{sys.version_info[1]}-{platform.system()}-{platform.machine()}"

PYTHON = """\
#!/bin/sh
# Makes environments whose Python is this program; pip and what compiles tell how they were called, all else is real.
case "$*" in
"-I -m venv --clear "*)
    rm -rf "$5"/*; mkdir -p "$5/bin" "$5/lib/python3.11/site-packages"; touch "$5/pyvenv.cfg"
    cp "$0" "$5/bin/python"; chmod 755 "$5/bin/python"
    echo "venv" >>"{told}" ;;
"-I -m pip "*) echo "${{PIP_USER:-}}${{PIP_TARGET:-}}" "$@" >>"{told}"; {pip} ;;
*jobs/__main__.py*) [ -n "${{ROCKETMQ_STORE_SPARK_CHECK:-}}" ] || printf '%s|' "$PYTHONSAFEPATH" "$@" ;;
"-m "*) echo "$@" >>"{told}" ;;
"-c "*) touch "${{ROCKETMQ_STORE_SPARK_VENV:-$PWD/a check out/.venv}}/tmp/spark.jsa" ;;
*) exec "{python}" "$@" ;;
esac
"""

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a checkout whose path has blanks and whose ``conf/`` names one jar of Delta."""
    root = tmp_path / "a check out"
    root.mkdir()
    for name in ("spark-submit.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for folder in ("jobs", "storeformat", "udfs"):
        (root / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "conf", root / "conf")
    (root / "conf" / "delta-jars.sha256").write_text(f"# sums\n{SUM}  io/delta/one/1/one-1.jar\n")
    (tmp_path / "maven" / "io" / "delta" / "one" / "1").mkdir(parents=True)
    (tmp_path / "maven" / "io" / "delta" / "one" / "1" / "one-1.jar").write_bytes(JAR)
    return root


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Returns the file with what pip and compilers were told."""
    return tmp_path / "told"


@pytest.fixture
def start(checkout: Path, tmp_path: Path, told: Path) -> Start:
    """Returns a function that starts the script as a new user would: empty HOME, nothing set up, a small PATH. ``pip``
    is what pip does, in shell.
    """
    (tmp_path / "home").mkdir()
    java = java_that_says(tmp_path / "java" / "bin" / "java", "17.0.15")

    def run(
        *arguments: str, program: Path | str = checkout / "spark-submit.sh", pip: str = ":", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        for python in (tmp_path / "bin" / "python3", checkout / ".venv" / "bin" / "python"):
            if python.exists() or python.name == "python3":
                executable(python, PYTHON.format(told=told, pip=pip, python=sys.executable))
        given = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "HOME": str(tmp_path / "home"),
            "JAVA_HOME": str(java.parent.parent),
            "ROCKETMQ_STORE_SPARK_MAVEN": (tmp_path / "maven").as_uri(),
        }
        return subprocess.run(
            [program, *arguments],
            env={**given, **settings},
            cwd=tmp_path,
            umask=0o077,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def ready(checkout: Path, start: Start, told: Path) -> Path:
    """Returns the environment of a checkout that is set up."""
    assert start("--setup").returncode == 0
    told.unlink()
    return checkout / ".venv"


def lines(told: Path) -> list[str]:
    return told.read_text().splitlines() if told.exists() else []


class TestWithoutSetUp:
    def test_help_needs_nothing(self, start: Start, checkout: Path) -> None:
        for arguments in (["--help"], [], ["rebuild", "--help"]):
            done = start(*arguments, JAVA_HOME="/nowhere", ROCKETMQ_STORE_SPARK_PYTHON=sys.executable)
            assert done.returncode == 0
            assert "spark-submit.sh" in done.stdout
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize(
        ("java", "line", "code", "said"),
        [
            ("/nowhere", "rebuild --store", 64, "error: argument --store"),
            (
                "/nowhere", "rebuild --store S --output D", 69,
                "error: Spark needs Java 17 or later: /nowhere/bin/java is missing\n",
            ),
            ("11.0.2", "rebuild --store S --output D", 69, "error: Spark needs Java 17 or later: "),
            ("nonsense", "rebuild --store S --output D", 69, "error: Spark needs Java 17 or later: "),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_told_before_anything_is_installed(
        self, start: Start, checkout: Path, tmp_path: Path, java: str, line: str, code: int, said: str
    ) -> None:
        if java != "/nowhere":
            java = str(java_that_says(tmp_path / "old" / "bin" / "java", java).parent.parent)
        done = start(*line.split(), JAVA_HOME=java, ROCKETMQ_STORE_SPARK_PYTHON=sys.executable)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(said)
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("line", ["preflight --store S", "publish --store S --from D"])
    def test_what_needs_no_jvm_needs_no_java(self, start: Start, line: str) -> None:
        assert start(*line.split(), JAVA_HOME="/nowhere").stdout.endswith(f"{line.replace(' ', '|')}|")

    def test_no_python_is_one_line_and_69(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        for tool in ("sh", "dirname", "readlink"):
            (tmp_path / "tools" / tool).symlink_to(shutil.which(tool) or "")
        done = start("demo", PATH=str(tmp_path / "tools"))
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            69,
            "error: a 64-bit Python 3.10 to 3.14 is needed",
        )

    def test_a_named_python_that_does_not_fit_is_not_replaced(
        self, start: Start, checkout: Path, tmp_path: Path
    ) -> None:
        old = executable(tmp_path / "old one" / "python", "#!/bin/sh\nexit 1\n")
        done = start("demo", ROCKETMQ_STORE_SPARK_PYTHON=str(old))
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            69, f"error: a 64-bit Python 3.10 to 3.14 is needed; ROCKETMQ_STORE_SPARK_PYTHON names {old}",
        )  # fmt: skip
        assert not (checkout / ".venv").exists()

    @pytest.mark.parametrize("arguments", ["--setup --form x", "--setup --from", "--setup x", "--pack", "--bundle a b"])
    def test_what_is_no_command_line(self, start: Start, checkout: Path, arguments: str) -> None:
        assert start(*arguments.split()).returncode == 64
        assert not (checkout / ".venv").exists()


class TestSetUp:
    def test_the_first_start_sets_up_and_goes_on(self, start: Start, checkout: Path, told: Path) -> None:
        done = start("demo", "a b", PIP_USER="1", PIP_TARGET="/elsewhere")
        assert done.stdout == f"1|{checkout}/jobs/__main__.py|demo|a b|"
        assert done.stderr.splitlines() == [
            f"setting up {checkout}/.venv (once: some 600 MB of packages, two minutes)",
            "  packages", "  Delta's jars", "  compiled kernels, class archive",
        ]  # fmt: skip
        made, *installed, kernels, bytecode = lines(told)
        assert made == "venv"
        assert [line.split("requirements/")[1].split(".txt")[0] for line in installed] == ["build", "setup", "fast"]
        for line in installed:
            assert line.startswith(" -I -m pip install "), "no other place to install to"
            assert {"--require-hashes", "--no-deps", "--no-build-isolation"} <= set(line.split())
        assert (kernels, bytecode[:16]) == ("-m storeformat.kernels.compile", "-m compileall -q")
        venv = checkout / ".venv"
        assert (venv / "jars" / "one-1.jar").read_bytes() == JAR
        assert (venv / "spark.jsa").is_file()
        assert not (venv / "tmp").exists()
        told.unlink()
        assert start("demo").stderr == ""
        assert lines(told) == []

    def test_one_that_was_interrupted_begins_anew(self, start: Start, ready: Path, told: Path) -> None:
        (ready / "ready").unlink()
        (ready / "tmp").mkdir()
        assert start("demo").returncode == 0
        assert lines(told)[0] == "venv"

    def test_packages_that_cannot_be_had(self, start: Start, checkout: Path) -> None:
        done = start("demo", pip="echo WARNING: Retrying; echo ERROR: No matching distribution found for x==1; exit 1")
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.splitlines()[-2:] == [
            "error: the packages could not be had: No matching distribution found for x==1",
            f"  all that pip said: {checkout}/.venv/pip.log; without a network: --setup --from FILE",
        ]
        assert not (checkout / ".venv" / "ready").exists()

    @pytest.mark.parametrize(
        ("said", "code"), [("ERROR: no wheel", 0), ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", 69)]
    )
    def test_numba_may_be_missing_but_not_another(self, start: Start, checkout: Path, said: str, code: int) -> None:
        done = start("demo", pip=f'case "$*" in *fast.txt*) echo "{said}"; exit 1;; esac')
        assert done.returncode == code
        assert ("numba has no wheel" in done.stderr) == (code == 0)
        assert (checkout / ".venv" / "ready").exists() == (code == 0)

    @pytest.mark.parametrize("way", ["ROCKETMQ_STORE_SPARK_MAVEN", "ROCKETMQ_STORE_SPARK_JARS"])
    @pytest.mark.parametrize("what", ["there", "changed", "absent"])
    def test_jars_are_the_published_ones(
        self, start: Start, checkout: Path, tmp_path: Path, way: str, what: str
    ) -> None:
        jar = tmp_path / "maven/io/delta/one/1/one-1.jar"
        if what == "changed":
            jar.write_bytes(JAR + b"!")
        elif what == "absent":
            jar.unlink()
        done = start("--setup", **{way: str(jar.parent) if way.endswith("JARS") else (tmp_path / "maven").as_uri()})
        unreachable = what == "absent" and way.endswith("MAVEN")
        assert done.returncode == (0 if what == "there" or unreachable else 69)
        assert (checkout / ".venv" / "jars").exists() == (what == "there")
        error = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(error) == (done.returncode != 0)
        if what == "changed":
            assert error == ["error: a jar is not the published one: one-1.jar"]
        elif what == "absent":
            assert "/one-1.jar: " in done.stderr if unreachable else error[0].endswith(" lacks one-1.jar")
            jar.write_bytes(JAR)
            assert start("--setup").returncode == 0
            assert (checkout / ".venv" / "jars" / "one-1.jar").exists()

    def test_where_only_maven_knows_the_way(self, start: Start, checkout: Path, tmp_path: Path) -> None:
        jar = (tmp_path / "maven/io/delta/one/1/one-1.jar").rename(tmp_path / "one-1.jar")
        wanted = f'[ "$3" = -Dartifact=io.delta:one:1 ] && cp "{jar}" "${{4#*=}}"'
        executable(tmp_path / "bin" / "mvn", f"#!/bin/sh\n{wanted}\n")
        done = start("--setup")
        assert (done.returncode, "one-1.jar" in done.stderr) == (0, False)
        assert (checkout / ".venv" / "jars" / "one-1.jar").read_bytes() == JAR

    def test_what_it_was_made_from_is_looked_at(self, start: Start, ready: Path, checkout: Path, told: Path) -> None:
        file = checkout / "conf" / "requirements" / "setup.txt"
        later = (ready / "ready").stat().st_mtime + 9
        os.utime(file, (later, later))
        assert start("demo").stderr == "", "the same text"
        file.write_text(file.read_text() + "more==1\n")
        os.utime(file, (later, later))
        assert "setting up" in start("demo").stderr
        assert lines(told)[0] == "venv"

    def test_a_directory_that_is_something_else_is_left_alone(self, start: Start, checkout: Path) -> None:
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / "mine").write_text("dear to me")
        done = start("demo")
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            69, f"error: {checkout}/.venv exists and is not a virtual environment",
        )  # fmt: skip
        assert [path.name for path in (checkout / ".venv").iterdir()] == ["mine"]

    @pytest.mark.skipif(shutil.which("flock") is None, reason="no flock")
    def test_a_second_start_waits_for_the_first(self, start: Start, checkout: Path, tmp_path: Path, told: Path) -> None:
        os.mkfifo(tmp_path / "goes on")
        start("--help", pip=f'echo at work >"{tmp_path}/begun"; read line <"{tmp_path}/goes on" || true')
        os.mkfifo(tmp_path / "begun")
        given = {
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "ROCKETMQ_STORE_SPARK_MAVEN": (tmp_path / "maven").as_uri(),
        }
        line = [str(checkout / "spark-submit.sh"), "--setup"]
        both = []
        for _ in range(2):
            both.append(subprocess.Popen(line, env=given, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
            if len(both) == 1:
                assert (tmp_path / "begun").read_text() == "at work\n"
        said = both[1].stderr
        assert said is not None
        assert said.readline() == "another start is setting things up: waiting for it\n"
        for number in range(3):
            (tmp_path / "goes on").write_text("on\n")
            if number < 2:
                (tmp_path / "begun").read_text()
        assert [one.communicate(timeout=120)[1].count("setting up") for one in both] == [1, 0]
        assert [one.returncode for one in both] == [0, 0]
        assert lines(told).count("venv") == 1

    def test_extras_come_once(self, start: Start, ready: Path, told: Path) -> None:
        for _ in range(2):
            done = start("--setup", "--with", "hdfs")
            assert done.returncode == 0, done.stderr
        assert len(lines(told)) == 1
        assert "requirements/hdfs.txt" in lines(told)[0]
        done = start("--setup", "--with", "hdsf")
        assert (done.returncode, "error: there is no extra hdsf\n" in done.stderr) == (69, True)


class TestWhenReady:
    def test_the_job_gets_its_arguments_as_they_are(self, start: Start, ready: Path, checkout: Path) -> None:
        done = start("--conf", "a=b c", "rebuild", "--store", "it's *", "")
        assert done.stdout == f"1|{checkout}/jobs/__main__.py|--conf|a=b c|rebuild|--store|it's *||"
        assert done.stderr == ""

    def test_through_a_link_and_from_elsewhere(self, start: Start, ready: Path, checkout: Path, tmp_path: Path) -> None:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "one").symlink_to(checkout / "spark-submit.sh")
        (tmp_path / "two").symlink_to("links/one")
        assert start("demo", program="./two").stdout == f"1|{checkout}/jobs/__main__.py|demo|"

    @pytest.mark.parametrize("java", ["/another", "", "/usr/../usr"])
    def test_nobody_looks_at_java(self, start: Start, ready: Path, checkout: Path, java: str) -> None:
        """Half of the jobs need none; a broker's ExecStartPre must not set anything up."""
        done = start("preflight", "--store", "S", JAVA_HOME=java)
        assert (done.stdout, done.stderr) == (f"1|{checkout}/jobs/__main__.py|preflight|--store|S|", "")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root may be others")
@pytest.mark.parametrize("user", [65534, 54321], ids=["nobody", "no passwd entry"])
class TestOthers:
    @pytest.fixture
    def place(self, ready: Path) -> Iterator[Path]:
        """Returns a copy of a checkout that is set up, where others may look."""
        with tempfile.TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            yield shutil.copytree(ready.parent, Path(directory, "checkout"), symlinks=True)

    def run(self, place: Path, user: int) -> subprocess.CompletedProcess[str]:
        given = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "ROCKETMQ_STORE_SPARK_PYTHON": str(place / "python3")}
        executable(place / "python3", "#!/bin/sh\n")
        (place / "python3").chmod(0o755)
        line = [str(place / "spark-submit.sh"), "preflight", "--store", "S"]
        return subprocess.run(
            line,
            env=given,
            cwd=place,
            user=user,
            group=user,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )

    def test_a_set_up_serves_all_who_may_read_it(self, place: Path, user: int) -> None:
        assert (place / ".venv" / "jars").stat().st_mode & 0o755 == 0o755
        done = self.run(place, user)
        assert (done.stdout, done.stderr) == (f"1|{place}/jobs/__main__.py|preflight|--store|S|", "")

    def test_one_that_may_not_be_read_is_one_line(self, place: Path, user: int) -> None:
        (place / ".venv").chmod(0o700)
        done = self.run(place, user)
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.splitlines()[0] == f"error: this user can neither use {place}/.venv nor set it up"


class TestFilesForElsewhere:
    @pytest.mark.parametrize("file", ["file/x", "."])
    def test_what_cannot_be_written(self, start: Start, ready: Path, tmp_path: Path, file: str) -> None:
        (tmp_path / "file").touch()
        before = sorted(tmp_path.iterdir())
        done = start("--pack", file)
        assert (done.returncode, done.stderr) == (74, f"error: {file} cannot be written\n")
        assert sorted(tmp_path.iterdir()) == before

    def test_a_bundle_is_set_up_from(self, start: Start, ready: Path, checkout: Path, told: Path) -> None:
        wheels = ready / "tmp" / "bundle" / HERE / "wheels"
        (checkout.parent / "victim").write_text("dear to me")
        (checkout.parent / "b.tar").symlink_to("victim")
        done = start("--bundle", "b.tar", pip=f'mkdir "{wheels}" && printf %s "{JAR.decode()}" >"{wheels}/w.whl"')
        assert done.returncode == 0, done.stderr
        assert "download" in lines(told)[-1]
        assert (checkout.parent / "victim").read_text() == "dear to me"
        assert not (checkout.parent / "b.tar").is_symlink()
        shutil.rmtree(ready)
        done = start("--setup", "--from", "b.tar", pip=f'ls "{ready}/tmp/bundle/wheels" >>"{told}"')
        assert done.returncode == 0, done.stderr
        assert "w.whl" in lines(told)
        assert f"--no-index --find-links {ready}/tmp/bundle/wheels" in lines(told)[-4]
        assert (ready / "jars" / "one-1.jar").read_bytes() == JAR

    def test_a_bundle_needs_the_jars(self, start: Start, ready: Path, tmp_path: Path) -> None:
        shutil.rmtree(ready / "jars")
        done = start("--bundle", "b.tar")
        assert (done.returncode, done.stderr.splitlines()[0]) == (69, "error: Delta's jars are not there")
        assert not list(tmp_path.glob("b.tar*"))

    @pytest.mark.parametrize(
        ("name", "kind", "why"),
        [
            (f"bundle/{HERE}/wheels/x.whl", "changed", "wheels/x.whl is not the published one"),
            (f"bundle/{HERE}/wheels/../x", "", "does not belong there"),
            (f"bundle/{HERE}/wheels/x\x1b[2J", "", r"x\x1b[2J does not belong there"),
            (f"bundle/{HERE}/wheels/x", "link", "does not belong there"),
            (f"bundle/{HERE}/wheels/x", "huge", "does not belong there"),
            ("bundle/python3.9-Linux-x86_64/wheels/x", "", "it is for python3.9-Linux-x86_64, and this is "),
            ("/etc/passwd", "", "does not belong there"),
            ("", "no tar", ""),
            ("", "absent", "No such file"),
        ],
    )
    def test_a_hostile_bundle_writes_nothing(
        self, start: Start, checkout: Path, tmp_path: Path, name: str, kind: str, why: str
    ) -> None:
        if kind == "no tar":
            (tmp_path / "b.tar").write_text("hello")
        elif kind != "absent":
            with tarfile.open(tmp_path / "b.tar", "w") as archive:
                good = tarfile.TarInfo(f"bundle/{HERE}/jars/one-1.jar")
                entry = tarfile.TarInfo(name)
                data = JAR + b"!" if kind == "changed" else JAR
                good.size, entry.size = len(JAR), len(data)
                if kind == "link":
                    entry.type, entry.linkname, data = tarfile.SYMTYPE, "/etc/passwd", b""
                    entry.size = 0
                archive.addfile(good, io.BytesIO(JAR))
                if kind == "huge":
                    entry.size = 1 << 40
                    archive.fileobj.write(entry.tobuf())  # type: ignore[union-attr]
                else:
                    archive.addfile(entry, io.BytesIO(data))
        done = start("--setup", "--from", "b.tar")
        assert done.returncode == 69
        error = done.stderr.splitlines()[-1]
        assert error.startswith("error: b.tar cannot be set up from: ")
        assert why in error
        assert not (checkout / ".venv" / "tmp" / "bundle").exists()


@pytest.mark.slow
@pytest.mark.skipif(JAVA is None, reason="no java")
def test_a_fresh_checkout_sets_itself_up(tmp_path: Path) -> None:
    """The whole first start, from the package index and the Maven repository: minutes, and the network."""
    root = tmp_path / "fresh"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
    (tmp_path / "home").mkdir()
    settings = {
        **os.environ, "HOME": str(tmp_path / "home"), "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable,
        "ROCKETMQ_STORE_SPARK_VENV": "",
    }  # fmt: skip
    line = [
        str(root / "spark-submit.sh"),
        "rebuild",
        "--store",
        str(tmp_path / "absent"),
        "--output",
        str(tmp_path / "o"),
    ]
    first = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert first.returncode == 66, first.stderr
    assert (root / ".venv" / "ready").is_file()
    assert (root / ".venv" / "spark.jsa").is_file()
    assert list((root / ".venv" / "jars").glob("delta-spark*.jar"))
    second = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert (second.returncode, "setting up" in second.stderr) == (66, False)


def without_network(*command: str) -> list[str]:
    """The command in a network namespace of its own, with loopback and nothing else."""
    return ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


@pytest.mark.slow
@pytest.mark.skipif(JAVA is None, reason="no java")
@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(without_network("true"), capture_output=True, check=False).returncode != 0,
    reason="no network namespaces here",
)
def test_a_bundle_sets_up_without_a_network(tmp_path: Path) -> None:
    bundle, venv, home = tmp_path / "bundle.tar", tmp_path / "venv", tmp_path / "home"
    home.mkdir()
    script = str(ROOT / "spark-submit.sh")
    subprocess.run(
        [script, "--bundle", str(bundle)], env={**os.environ, "ROCKETMQ_STORE_SPARK_VENV": sys.prefix}, check=True
    )
    settings = {
        **os.environ,
        "HOME": str(home),
        "PIP_RETRIES": "0",
        "ROCKETMQ_STORE_SPARK_VENV": str(venv),
        "ROCKETMQ_STORE_SPARK_PYTHON": sys.executable,
    }
    for words, code in ((["--setup"], 69), (["--setup", "--from", str(bundle)], 0), (["demo"], 0)):
        done = subprocess.run(
            without_network(script, *words), env=settings, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
    assert "identical with the broker's own" in done.stdout
