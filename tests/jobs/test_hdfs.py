"""Stores on a real HDFS with two data nodes: rebuilt byte for byte as on a local disk, judged and shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import golden
from support.golden import GoldenStore
from support.hadoop_cluster import hadoop_cluster
from support.rebuilding import options_for, rebuild_here, rebuilt_files

from jobs.log.opening import open_store
from jobs.rebuild import build_store
from jobs.spark.runner import Runner
from storeformat.storage import extents, files, locations

pytestmark = [pytest.mark.golden, pytest.mark.hadoop]


@dataclass(frozen=True)
class Snapshot:
    """A store of a real broker, here and on HDFS."""

    store: GoldenStore
    root: Path
    files: str

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        return options_for(self.root, Path(), self.store.settings).settings


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    pytest.importorskip("hdfs_native")
    (store,) = golden.stores("base-clean-5.3.3")
    with hadoop_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        one = Snapshot(store, golden.unpack(store), cluster.files)
        cluster.put(one.root, "/snap/broker-a/store")
        yield one


def test_a_rebuild_is_that_of_a_local_disk(snapshot: Snapshot, tmp_path: Path) -> None:
    local = rebuild_here(snapshot.root, tmp_path / "local", snapshot.store.settings)
    wanted = rebuilt_files(local.directory)
    (tmp_path / "work").mkdir()
    options = options_for(Path("/"), tmp_path / "work" / "output", snapshot.store.settings)
    options = type(options)(**{**vars(options), "store": f"{snapshot.files}/snap/broker-a/store"})
    output = f"{snapshot.files}/rebuilt"
    build_store.rebuild(options, open_store(options), str(tmp_path / "work"), Runner(), made=output)
    assert rebuilt_files(output) == wanted
    name, content = max(wanted.items())
    assert extents.stray_byte(locations.join(output, name), len(content)) is None
    files.remove_tree(output)
    assert files.tree_sizes(output) == {}
