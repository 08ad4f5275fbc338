"""The warm process: it loads torch and the judge once, and carries out each command that asks in a copy of itself.

It reads no file of any candidate, so that no copy has what another candidate has touched. It ends after some minutes in
which nobody asks, and where a file has changed that it has loaded.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..warm.address import surrenders_of
from .host import set_library_settings

#: Seconds without a command after which the process ends, and seconds that a command may take to say what it wants.
_IDLE, _PATIENCE = 600.0, 2.0
_MOST = 1 << 24

#: (words of a command) -> its exit code.
CarryOut = Callable[[Sequence[str]], int]
#: path -> when it was changed last, and how long it is.
Stamps = dict[str, tuple[int, int]]


def load() -> None:
    """Import what a judgement needs, and keep it from the garbage collector for good."""
    set_library_settings()
    gc.disable()
    from ...properties.candidates.suites import warm_program
    from .judge import judge, recording  # noqa: F401 (each copy has them)

    warm_program.prepare({})
    gc.freeze()
    gc.enable()


def stamps() -> Stamps:
    """Of the files of all loaded modules, of all files of opassay, and of the folders where Python finds modules."""
    files = [file for module in [*sys.modules.values()] if isinstance(file := getattr(module, "__file__", None), str)]
    # An installation to be edited has the rooms in several folders.
    package = __name__.partition(".")[0]
    rooms = [module for name, module in sys.modules.items() if name.rpartition(".")[0] == package]
    walks = [step for room in rooms for folder in getattr(room, "__path__", ()) for step in os.walk(folder)]
    ours = [os.path.join(folder, name) for folder, _, names in walks if "__pycache__" not in folder for name in names]
    result = {}
    for path in (*files, *sys.path, *ours):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            result[path] = status.st_mtime_ns, status.st_size
    return result


class WarmProcess:
    """Copies of this process, each for a command at the other end of a connection.

    Args:
        listener: where commands ask. password: that of the place. carry_out: see `serve_copies`.
    """

    def __init__(self, listener: socket.socket, password: str, carry_out: CarryOut) -> None:
        self._listener, self._password, self._carry_out = listener, password, carry_out
        self._own = surrenders_of("self")
        self._stamps = stamps()
        self._copies: dict[int, tuple[int, socket.socket]] = {}  # descriptor of a copy -> its pid, who waits for it

    def serve(self) -> None:
        """Serve until nobody has asked for some minutes, or a file has changed."""
        until = time.monotonic() + _IDLE
        while self._copies or time.monotonic() < until:
            peers = {peer.fileno(): copy for copy, (_, peer) in self._copies.items()}
            door = self._listener.fileno()  # -1 where it is closed
            waits = [*([door] if door >= 0 else []), *self._copies, *peers]
            ready, _, _ = select.select(waits, [], [], None if self._copies else max(0.0, until - time.monotonic()))
            for handle in ready:
                if handle == door:
                    self._accept()
                elif handle in self._copies:
                    self._tell_end(handle)
                elif peers.get(handle) in self._copies:  # the command was killed, and so is what it began
                    self._kill(peers[handle])
            until = time.monotonic() + _IDLE if self._listener.fileno() >= 0 else 0.0

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        handles: list[int] = []
        try:
            peer.settimeout(_PATIENCE)
            request = self._read(peer, handles)
            if stamps() != self._stamps:
                self._listener.close()  # the next command starts another process
                raise ValueError("files have changed")
            self._copy(peer, request, handles)
        except (OSError, ValueError, KeyError):
            peer.close()
        finally:
            for handle in handles:
                os.close(handle)

    def _read(self, peer: socket.socket, handles: list[int]) -> dict[str, Any]:
        """What a command wants, and its standard streams; ValueError where it is not as free as this process."""
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        # A candidate that is confined may reach this socket. Its process has given up what a command has not.
        if surrenders_of(int.from_bytes(credentials[:4], sys.byteorder)) != self._own:
            raise ValueError("the command may do less than this process")
        head, sent, _, _ = socket.recv_fds(peer, 4, 3)
        handles += sent
        length = int.from_bytes(head, "big")
        if len(head) != 4 or len(sent) != 3 or length > _MOST:
            raise ValueError("no request")
        with peer.makefile("rb") as stream:
            request: dict[str, Any] = json.loads(stream.read(length))
        if not secrets.compare_digest(str(request["password"]).encode(), self._password.encode()):
            raise ValueError("another password")
        return request

    def _copy(self, peer: socket.socket, request: dict[str, Any], handles: Sequence[int]) -> None:
        pid = os.fork()
        if not pid:
            self._listener.close()
            for copy, (_, other) in self._copies.items():
                os.close(copy)
                other.close()
            peer.close()
            _become(request, handles, self._carry_out)
        self._copies[copy := os.pidfd_open(pid)] = pid, peer
        try:
            peer.sendall(f"{pid}\n".encode())
        except OSError:
            self._kill(copy)

    def _kill(self, copy: int) -> None:
        pid, _ = self._copies[copy]
        # A copy that has just begun leads no group yet, and has begun nothing.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        self._tell_end(copy)

    def _tell_end(self, copy: int) -> None:
        pid, peer = self._copies.pop(copy)
        _, status = os.waitpid(pid, 0)
        os.close(copy)
        with contextlib.suppress(OSError), peer:
            peer.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(request: dict[str, Any], handles: Sequence[int], carry_out: CarryOut) -> NoReturn:
    """Become the process of a command, and end as it does."""
    code = 3
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself begins
        for target, handle in enumerate(handles):
            os.dup2(handle, target)
            os.close(handle)
        os.chdir(request["folder"])
        os.umask(request["mask"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[:] = [request["program"], *request["words"]]
        sys.path[:] = request["path"]
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), sys.stdin.encoding, sys.stdin.errors)
        sys.stdout, sys.stderr = (_stream(handle, old) for handle, old in ((1, sys.stdout), (2, sys.stderr)))
        tempfile.tempdir = None
        from ...properties.candidates.suites.warm_program import draw_anew

        draw_anew()
        code = carry_out(request["words"])
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _stream(handle: int, old: Any) -> io.TextIOWrapper:
    """Standard output or error as Python makes it, by line at a terminal and where errors go."""
    by_line = os.isatty(handle) or handle == 2
    raw = io.BufferedWriter(io.FileIO(handle, "wb", closefd=False))
    return io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=by_line)


def serve_copies(place: str, password: str, carry_out: CarryOut) -> None:
    """Load everything, then listen at a place, unless another process was quicker.

    Args:
        place: path of the socket. password: of the file with the password.
        carry_out: what a copy does: (words of a command) -> its exit code.
    """
    began = time.time_ns()
    os.close(os.pidfd_open(os.getpid()))  # without which nobody could wait for copies and for commands at once
    load()
    if any(changed > began for changed, _ in stamps().values()):
        return
    secret = secrets.token_hex(16)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own, words = f"{place}.{os.getpid()}", f"{password}.{os.getpid()}"
    try:
        with open(os.open(words, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret} {os.getpid()}")
        listener.bind(own)
        listener.listen(8)
        os.link(own, place)  # which fails where another process listens
        os.replace(words, password)
    finally:
        for path in (own, words):
            with contextlib.suppress(OSError):
                os.unlink(path)
    try:
        WarmProcess(listener, secret, carry_out).serve()
    finally:
        os.unlink(place)
