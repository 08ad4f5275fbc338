"""The command's side: hand its work to a copy of a warm process, or have one started for the next command.

This module needs the standard library alone: what it imports is what a warm command takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from .address import WarmAddress, find_address, surrenders_of

#: "0": no warm process is used or started; "1": one is started wherever none is there.
VARIABLE = "OPASSAY_WARM"
#: Commands that torch and the judge take longer to load for than to carry out.
_COMMANDS = ("judge", "bound", "tolerances", "replay")
#: Words with which a command loads torch otherwise: under another device, or kernels in an interpreter.
_OTHERWISE = ("--device", "--interpret", "--compiled", "--world", "--watch", "-h", "--help")
#: What is passed on to the copy, which is in no group of the terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS = 5.0
#: Warm processes of one user, at most.
_MOST = 2
#: The word behind `python -m opassay` with which a warm process begins.
BEGIN = "begin-warm-process"


class Warmth:
    """What a command may have of a warm process.

    Args:
        arguments: of the command, without the program's name.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments, self._environment = list(arguments), dict(os.environ)
        self._place = self._find_address()

    def _find_address(self) -> WarmAddress | None:
        words, variables = self._arguments, self._environment
        usable = sys.platform == "linux" and "torch" not in sys.modules and words[:1] and words[0] in _COMMANDS
        # The folder of the script stands first among those of modules; with `-m` it is any folder.
        usable = usable and sys.path[:1] == [str(Path(sys.argv[0]).absolute().parent)]
        if not usable or variables.get(VARIABLE) == "0" or "LD_PRELOAD" in variables:
            return None
        if any(word.partition("=")[0] in _OTHERWISE for word in words):
            return None
        with contextlib.suppress(OSError, KeyError):
            return find_address(variables)
        return None

    def carry_out(self) -> int | None:
        """The exit code of the command, carried out by a copy of a warm process; None where there is none."""
        if self._place is None:
            return None
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_SECONDS)
            try:
                peer.connect(self._place.socket)
            except ConnectionRefusedError:  # whoever listened there was killed
                os.unlink(self._place.socket)
                raise
            lines = _lines_of(peer)
            self._send(peer, self._place)
            pid = int(next(lines, "0"))
            if pid > 0:
                peer.settimeout(None)
                with _passing_signals(pid):
                    return _exit_as(next(lines, ""))
        return None

    def begin(self) -> None:
        """Start a warm process for the next command, where somebody sits at a terminal or has asked for it."""
        asks = self._environment.get(VARIABLE) == "1"
        sits = sys.stderr is not None and sys.stderr.isatty() and not self._environment.get("CI")
        # Each shell may have an environment of its own, and each process takes memory.
        if self._place is None or not (asks or sits) or self._place.count_others() >= _MOST:
            return
        if os.path.exists(self._place.socket):
            return
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        package, paths = __name__.partition(".")[0], (self._place.socket, str(self._place.password))
        command = [sys.executable, *flags, "-P", "-m", package, BEGIN, *paths]
        with contextlib.suppress(OSError):
            subprocess.Popen(
                command, env=self._environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _send(self, peer: socket.socket, place: WarmAddress) -> None:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if surrenders_of(int.from_bytes(credentials[:4], sys.byteorder)) != surrenders_of("self"):
            raise OSError("the process behind the socket is another's")
        request = {
            "password": place.password.read_text().split()[0], "words": self._arguments, "program": sys.argv[0],
            "folder": os.getcwd(), "environment": self._environment, "mask": _read_mask(), "path": sys.path,
        }  # fmt: skip
        text = json.dumps(request).encode()
        socket.send_fds(peer, [len(text).to_bytes(4, "big")], [0, 1, 2])
        peer.sendall(text)


def _lines_of(peer: socket.socket) -> Iterator[str]:
    with peer.makefile("r", encoding="ascii") as lines:
        yield from lines


def _read_mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _passing_signals(pid: int) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_as(line: str) -> int:
    """The exit code that a copy ended with; this process ends by a signal as the copy did."""
    code = int(line or -int(signal.SIGKILL))  # no line where the warm process itself was ended
    if code < 0:
        with contextlib.suppress(OSError):  # of SIGKILL nobody has a handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code
