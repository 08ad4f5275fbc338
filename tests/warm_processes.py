"""Processes of candidates as copies of one that has imported torch and its compiler.

A candidate's process imports torch and its compiler, two seconds of the processor, and does so for every judgement of
a test. The command `opassay judge` makes it by a copy of itself, but cannot do so here, where tests and threads of
pytest are in the process. So one process of its own, a template, imports the same and is copied.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What a new process would read before the first line of its program; a copy has what its template read.
_READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "NUMPY_", "TORCH", "TRITON", "CUDA")
#: Of the template: no thread but the first, without which a copy can be confined.
_ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the folder that torch's compiler makes up and names there, because a candidate gets one of its own."""
    names = {name for name in environment if name.startswith(_READ_AT_START)} - {"TORCHINDUCTOR_CACHE_DIR"}
    return {name: environment[name] for name in names}


class Template:
    """A process of its own that is copied, one copy after the other.

    Args:
        environment: what it begins with.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._began, self._lock = _read_at_start(environment), threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from runpy import run_path; run_path({__file__!r}, run_name='__main__')",
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env={**environment, **_ALONE},
                start_new_session=True,
            )  # fmt: skip
        atexit.register(self.close)

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Whether a process that begins with this environment is as a copy would be."""
        return self._began == _read_at_start(environment)

    def ask(self, question: Mapping[str, Any], handles: Sequence[int] = ()) -> Any:
        """The answer to a question, with copies of files that are open here."""
        content = json.dumps(question).encode()
        with self._lock:
            socket.send_fds(self._socket, [len(content).to_bytes(4, "big")], handles)
            self._socket.sendall(content)
            return json.loads(_received(self._socket, int.from_bytes(_received(self._socket, 4), "big")))

    def close(self) -> None:
        """End it, and so all copies."""
        self._socket.close()
        self._process.wait()


class Copy:
    """A copy of a template that runs the program of a candidate, to be used as `subprocess.Popen` is."""

    def __init__(self, template: Template, pid: int) -> None:
        self._template, self.pid = template, pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self._status is None:
            self._status = self._template.ask({"status": self.pid})
        return self._status

    def wait(self) -> int:
        """The exit status, waited for."""
        while (status := self.poll()) is None:
            time.sleep(0.001)
        return status

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, 9)


@functools.cache
def _template_of(pid: int) -> Template:
    """That of this process, which has this number; a copy of this process makes one of its own."""
    return Template(os.environ)


def start(process: Callable[..., Any], hello: Mapping[str, Any], *, command: Any, marked: bool) -> Any:
    """The process of a candidate, as `quarters.Quarters` asks for it, by a copy where that makes no difference.

    Args:
        process: the class. hello, command, marked: its arguments.
    """
    if not callable(command) and not hello["interpret"] and not hello["compiled"]:
        template = _template_of(os.getpid())
        command = functools.partial(_start_copy, template) if template.serves(os.environ) else command
    return process(hello, command=command, marked=marked)


def _start_copy(
    template: Template,
    words: Sequence[str],
    handles: Sequence[int],
    printed: int | None,
    environment: Mapping[str, str],
) -> Copy:
    assert printed is not None
    question = {"words": [*words], "environment": {**environment}, "folder": os.getcwd()}
    return Copy(template, template.ask(question, [printed, *handles]))


def _received(pipe: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = pipe.recv(size - len(content))
        if not more:
            raise EOFError
        content += more
    return content


def _serve(pipe: socket.socket) -> None:
    """The template's part: copies, and how they ended, until nobody asks any more."""
    from opassay.oracles import process
    from opassay.properties.candidates.host import calls, host, module_files, program  # noqa: F401

    process.settle()
    while True:
        head, handles, *_ = socket.recv_fds(pipe, 4, 8)
        if len(head) < 4:
            os._exit(0)  # its copies end with it
        question = json.loads(_received(pipe, int.from_bytes(head, "big")))
        if "status" in question:
            pid, status = os.waitpid(question["status"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                try:
                    _become(question, handles)
                    program.main()
                finally:
                    os._exit(70)
        for handle in handles:
            os.close(handle)
        content = json.dumps(answer).encode()
        pipe.sendall(len(content).to_bytes(4, "big") + content)


def _become(question: Mapping[str, Any], handles: Sequence[int]) -> None:
    """Make of a copy what a new process would be: session, files, folder, environment and words."""
    gc.freeze()
    os.setsid()
    printed, *theirs = handles
    for place in (1, 2):
        os.dup2(printed, place)
    os.closerange(3, min(theirs))
    for handle in map(int, os.listdir("/proc/self/fd")):
        if handle > 2 and handle not in theirs:
            with contextlib.suppress(OSError):  # that of the list
                os.close(handle)
    os.chdir(question["folder"])
    os.environ.clear()
    os.environ.update(question["environment"])
    sys.path.insert(0, question["folder"])
    sys.argv[:] = ["program", str(os.getppid()), *map(str, theirs), *question["words"][4:]]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
