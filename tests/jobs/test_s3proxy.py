"""A rebuild onto a second S3 server, none of Python's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the S3 client is not installed")
from support import golden
from support.object_store import Bucket
from support.real_store import RealStoreUnavailable, build_driver
from support.rebuilding import options_for, rebuild_here, rebuilt_files

from jobs.log.opening import open_store
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from storeformat.errors import TotalsDisagree

pytestmark = [pytest.mark.golden, pytest.mark.servers]

HOME = Path(__file__).resolve().parents[1] / "s3proxy"
SAYS_ITS_PORT = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <logger name="org.gaul.shaded.org.eclipse.jetty.server.AbstractConnector" level="INFO"/>
  <root level="OFF"><appender-ref ref="out"/></root>
</configuration>
"""
WITHOUT_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server that does not know the checksums that clients send after an object's bytes."""
    try:
        class_path = build_driver("2.6.0", HOME / "pom.xml", [], HOME / "target" / "2.6.0")
    except RealStoreUnavailable as error:
        pytest.skip(str(error))
    conf = tmp_path_factory.mktemp("s3proxy") / "s3proxy.conf"
    conf.write_text(
        "s3proxy.endpoint=http://127.0.0.1:0\ns3proxy.authorization=none\ns3proxy.ignore-unknown-headers=true\n"
        "jclouds.provider=transient-nio2\njclouds.identity=key\njclouds.credential=secret\n"
    )
    log = conf.with_name("logback.xml")
    log.write_text(SAYS_ITS_PORT)
    command = [
        "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlogback.configurationFile={log}", "-cp", class_path,
        "org.gaul.s3proxy.Main", "--properties", str(conf),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield next(found[1] for line in server.stdout if (found := re.search(r"Started .*{(127.0.0.1:\d+)}", line)))
        finally:
            server.terminate()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Bucket:
    if getattr(request, "param", True):
        monkeypatch.setenv(*WITHOUT_CHECKSUMS)
    made = Bucket(endpoint, f"bucket-{abs(hash(request.node.name))}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*WITHOUT_CHECKSUMS)
        made.client.create_bucket(Bucket=made.name)
    return made


def rebuilt(bucket: Bucket, root: Path, work: Path, settings: dict[str, object]) -> str:
    """The URI of a rebuild there."""
    output = bucket.uri("rebuilt")
    work.mkdir()
    options = options_for(root, work / "unused", settings)
    build_store.rebuild(options, open_store(options), str(work), Runner(), made=output)
    return output


def test_a_rebuild_is_that_of_a_local_disk(bucket: Bucket, tmp_path: Path) -> None:
    (store,) = golden.stores("base-clean-5.3.3")
    root = golden.unpack(store)
    local = rebuild_here(root, tmp_path / "local", store.settings)
    output = rebuilt(bucket, root, tmp_path / "there", store.settings)
    assert rebuilt_files(output) == rebuilt_files(local.directory)


@pytest.mark.parametrize("bucket", [False], indirect=True)
def test_an_object_that_holds_its_checksums_is_none_of_a_rebuild(bucket: Bucket, tmp_path: Path) -> None:
    """Unless the client is told not to send them, this server takes them for bytes of the object."""
    (store,) = golden.stores("base-clean-5.3.3")
    with pytest.raises(TotalsDisagree, match="differs from what was written"):
        rebuilt(bucket, golden.unpack(store), tmp_path / "there", store.settings)
