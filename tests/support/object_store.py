"""An S3 server in a process of its own (delta-rs may hold this one's lock while it waits), and URIs into it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3

from storeformat.storage import files


@dataclass(frozen=True)
class Bucket:
    endpoint: str
    name: str

    def uri(self, path: str) -> str:
        """The URI of a path in the bucket, with everything a client needs."""
        return f"s3://key:secret@{self.name}/{path}?scheme=http&endpoint_override={self.endpoint}&region=us-east-1"

    @property
    def client(self):  # type: ignore[no-untyped-def]
        """A client that is none of ours."""
        return boto3.client(
            "s3", endpoint_url=f"http://{self.endpoint}", region_name="us-east-1",
            aws_access_key_id="key", aws_secret_access_key="secret",
        )  # fmt: skip

    def names(self, path: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=path).get("Contents", [])
        names = [item["Key"][len(path) :].lstrip("/") for item in found]
        return [name for name in names if name]  # an empty one stands for a directory

    def upload(self, directory: Path, path: str) -> str:
        for file in directory.rglob("*"):
            if file.is_file():
                self.client.put_object(
                    Bucket=self.name, Key=f"{path}/{file.relative_to(directory).as_posix()}", Body=file.read_bytes()
                )
        return self.uri(path)

    def download(self, path: str, directory: Path) -> Path:
        for name in self.names(path):
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.client.get_object(Bucket=self.name, Key=f"{path}/{name}")["Body"].read())
        return directory


_SERVER = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

put, one_step = S3Response.put_object, threading.Lock()

def put_object(self):
    with one_step:
        return put(self)

S3Response.put_object = put_object
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("%s:%s" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@contextmanager
def serving() -> Iterator[str]:
    """Yields the endpoint of a server that looks whether an object is there and puts it in one step, as S3 does."""
    command = [sys.executable, "-c", _SERVER]
    pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:  # type: ignore[call-overload]
        try:
            yield next(line.strip() for line in server.stdout if line.startswith("127.0.0.1:"))
        finally:
            server.kill()
            files.client_of.cache_clear()
