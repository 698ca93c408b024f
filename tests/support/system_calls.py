"""A process whose changes of the file system another one sees before they happen, each as a system call, by Linux'
``seccomp`` notifications: Python, Arrow, Rust and forked workers look alike, and none needs a hook.

A change makes, writes, syncs, renames or removes a file below one directory. Needs Linux 5.19 on x86-64 or ARM64.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OPEN, _OPENAT = "open", "openat"
_BY_HANDLE = frozenset({"write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "fallocate",
                        "fchmod", "fchown"})  # fmt: skip
_BY_NAME = {  # the arguments that are a directory's handle (None: none is) and a path in it
    "open": (None, 0), "openat": (0, 1), "mkdir": (None, 0), "mkdirat": (0, 1), "rename": (None, 1),
    "renameat": (2, 3), "renameat2": (2, 3), "link": (None, 1), "linkat": (2, 3), "symlinkat": (1, 2),
    "unlink": (None, 0), "unlinkat": (0, 1), "rmdir": (None, 0), "utimensat": (0, 1), "truncate": (None, 0),
    "chmod": (None, 0), "fchmodat": (0, 1), "chown": (None, 0), "lchown": (None, 0), "fchownat": (0, 1),
}  # fmt: skip
_REMOVALS = frozenset({"unlink", "unlinkat", "rmdir"})
_NUMBERS = {
    "x86_64": (0xC000003E, 317, {
        "write": 1, "open": 2, "pwrite64": 18, "writev": 20, "fsync": 74, "fdatasync": 75, "truncate": 76,
        "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "unlink": 87, "openat": 257,
        "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "utimensat": 280,
        "fallocate": 285, "pwritev": 296, "renameat2": 316, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93,
        "lchown": 94, "fchownat": 260, "fchmodat": 268,
    }),
    "aarch64": (0xC00000B7, 277, {
        "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46,
        "fallocate": 47, "openat": 56, "write": 64, "writev": 66, "pwrite64": 68, "pwritev": 70, "fsync": 82,
        "fdatasync": 83, "utimensat": 88, "renameat2": 276, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55,
    }),
}  # fmt: skip
"""Of a machine: what ``seccomp`` calls it, the number of that call, and those of the calls that are changes."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, thread, flags; number, machine, instruction, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1
_AT_WORKING_DIRECTORY = -100
_LONGEST_PATH = 4096


def install() -> int:
    """Makes the changes of this thread and of all that it starts wait for an answer; returns the handle to them."""
    machine, seccomp, numbers = _NUMBERS[platform.machine()]
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter(machine, numbers)
    code = ctypes.create_string_buffer(program, len(program))
    loaded = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    no_new_privileges, filter_mode, new_listener, wait_killable = 38, 1, 1 << 3, 1 << 5
    if libc.prctl(no_new_privileges, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    handle = libc.syscall(seccomp, filter_mode, new_listener | wait_killable, loaded)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(handle)


def _filter(machine: int, numbers: Mapping[str, int]) -> bytes:
    """Returns the filter's code: the calls of ``numbers`` are shown, opening only when it is for writing."""
    load, equal, any_bit, done = 0x20, 0x15, 0x45, 0x06
    allow, show = 0x7FFF0000, 0x7FC00000
    number_at, machine_at, arguments_at = 0, 4, 16
    code = [(load, 0, 0, machine_at), (equal, 1, 0, machine), (done, 0, 0, allow), (load, 0, 0, number_at)]
    for name, number in numbers.items():
        if name in (_OPEN, _OPENAT):
            flags = arguments_at + 8 * (1 if name == _OPEN else 2)
            code += [(equal, 0, 4, number), (load, 0, 0, flags), (any_bit, 0, 1, _WRITING), (done, 0, 0, show),
                     (done, 0, 0, allow)]  # fmt: skip
        else:
            code += [(equal, 0, 1, number), (done, 0, 0, show)]
    return b"".join(struct.pack("=HBBI", *row) for row in (*code, (done, 0, 0, allow)))


@dataclass
class Fault:
    """A signal before a change below a directory, or an errno in place of one that makes something alone."""

    name: str
    before: int
    below: str
    came: bool = False
    changes: int = 0

    def answers(self, process: int, handle: int) -> None:
        """Answers to all changes of a process and those that it starts, until all have ended."""
        names = {number: name for name, number in _NUMBERS[platform.machine()][2].items()}
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not any(event & select.POLLHUP for _, event in poll.poll()):
            notification = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(handle, _RECEIVE, notification)
            except OSError as error:
                if error.errno == errno.ENOENT:  # it was killed meanwhile
                    continue
                raise
            found, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)
            failed = self._failed(process, thread, names[number], arguments)
            try:
                fcntl.ioctl(handle, _SEND, _ANSWER.pack(found, 0, -failed, 0 if failed else _GO_ON))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise

    def _failed(self, process: int, thread: int, call: str, arguments: list[int]) -> int:
        """Returns the error of a change, 0 for none."""
        error = 0 if self.name.startswith("SIG") else getattr(errno, self.name)
        changed = _changed(thread, call, arguments)
        if changed is None or not changed.startswith(f"{self.below}/") or (error and call in _REMOVALS):
            return 0
        owner = _process_of(thread)
        if owner is None:
            return 0
        self.changes += 1
        if self.came or self.changes <= self.before:
            return 0
        self.came = True
        if not error:
            with suppress(ProcessLookupError):
                os.kill(owner, signal.Signals[self.name])
        return error


def _changed(thread: int, call: str, arguments: list[int]) -> str | None:
    """Returns the path of what a call would change, None where the process has gone."""
    try:
        if call in _BY_HANDLE:
            return str(Path(f"/proc/{thread}/fd/{arguments[0]}").readlink())
        directory, name = _BY_NAME[call]
        with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(arguments[name])
            path = os.fsdecode(memory.read(_LONGEST_PATH).partition(b"\0")[0])
        at = _AT_WORKING_DIRECTORY if directory is None else ctypes.c_int(arguments[directory] & 0xFFFFFFFF).value
        base = Path(f"/proc/{thread}", "cwd" if at == _AT_WORKING_DIRECTORY else f"fd/{at}")
        return path if path.startswith("/") else str(base.readlink() / path)
    except OSError:
        return None


def _process_of(thread: int) -> int | None:
    """Returns the process that a thread is of, None where it has gone."""
    try:
        status = Path(f"/proc/{thread}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:"))
