"""The process that Spark forks its Python workers from, with everything already imported that our tasks need.

Spark starts ``pyspark.daemon``, which imports next to nothing, and every worker then imports numpy, pyarrow and the
compiled kernels again. Here it happens once, and workers share the memory. Set by ``spark.python.daemon.module``; only
where this package can be imported when Spark starts it.

It happens early, too. The imports take as long as the start of the JVM, so the driver starts this module beside the JVM
(with the name of a socket to listen on), and when Spark starts it in its turn, that one hands its place over:

=============================  =====================================================================================
what goes over the socket      and why
=============================  =====================================================================================
stdin, stdout, stderr          Spark's pipes: the daemon tells its own socket there, and ends when stdin does
JSON, one line                 arguments and environment that Spark gave
``y``, back                    the place is taken
=============================  =====================================================================================

The one that Spark knows then waits until the other has gone. Whatever goes wrong, it imports and serves by itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace

from udfs import hidden_pandas

EARLY = "ROCKETMQ_STORE_SPARK_EARLY_DAEMON"
"""Name of the environment variable with the path of the socket."""

ROWS = "ROCKETMQ_STORE_SPARK_ROWS"
"""Name of the environment variable that says that tasks will be ours alone, and by 1 that they will make rows."""

_PATIENCE = 30


def prepared() -> Callable[[], None]:
    """Imports what tasks need; returns what forks workers until Spark ends."""
    from pyspark import daemon  # noqa: PLC0415  (this module must cost nothing to one that only hands over)

    if ROWS in os.environ:
        hidden_pandas.hide()
    import_tasks(rows=os.environ.get(ROWS) == "1")
    hidden_pandas.show()
    vars(daemon)["traceback"] = SimpleNamespace(print_exc=print_trace, format_exc=traceback.format_exc)
    return daemon.manager


def import_tasks(*, rows: bool) -> None:
    """Imports what tasks need, those that make ``rows`` too, before processes for them are forked from this one."""
    import pyarrow as pa  # noqa: PLC0415

    from storeformat.kernels import active  # noqa: PLC0415
    from udfs.files import build  # noqa: F401, PLC0415  (for the workers, as the next)
    from udfs.log import scan  # noqa: F401, PLC0415

    if rows:
        from udfs.table import parquet_files  # noqa: F401, PLC0415
    pa.array([None])  # the first one looks for pandas
    active()
    gc.freeze()  # what is here now stays: collections in the workers need not touch (and so copy) its pages


def print_trace() -> None:
    """Prints the trace with which a worker ends, unless its JVM has hung up because it needs no more rows.

    What matters comes to the driver as an exception.
    """
    if not isinstance(sys.exc_info()[1], ConnectionError):
        traceback.print_exc()


def wait_for_place(path: str) -> None:
    """Imports, and takes the place that is handed over at ``path``; ends when stdin does, or without a word."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        manager = prepared()
        if 0 in select.select([0, listening.fileno()], [], [])[0]:
            return
        connection, _ = listening.accept()
    connection.settimeout(_PATIENCE)
    data, handles, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not data.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more:  # whoever was handing over has gone
            return
        data += more
    given = json.loads(data)
    connection.sendall(b"y")
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv = given["arguments"]
    manager()


def hand_over(path: str) -> bool:
    """Returns whether another process has taken this one's place; then its work is over, too."""
    given = {"arguments": sys.argv, "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(path)
            socket.send_fds(connection, [b" "], [0, 1, 2])
            connection.sendall(json.dumps(given).encode() + b"\n")
            if connection.recv(1) != b"y":
                return False
        except OSError:
            return False
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # the pipes are the other's now, and must end with it
            os.dup2(nothing, number)
        connection.settimeout(None)
        with contextlib.suppress(OSError):
            connection.recv(1)
    return True


def main() -> None:
    """Waits for a place, hands it over, or fills it."""
    early = os.environ.get(EARLY)
    if sys.argv[1:] == ["--early"] and early:
        wait_for_place(early)
    elif not (early and hand_over(early)):
        prepared()()


if __name__ == "__main__":
    main()
