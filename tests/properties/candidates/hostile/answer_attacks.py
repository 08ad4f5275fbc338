"""Candidates that answer something else than their outputs: by the files and the pipe between them and their judge."""

from __future__ import annotations

from .attack import Attack

#: Replaces something of the host in a call after the first ones, which are watched: what is replaced is put back.
_LATER = """
COUNT = []
def candidate(x):
    COUNT.append(1)
    if len(COUNT) > 3:
        {replace}
    return x * 2
"""
#: Replaces what writes an answer; `{act}` writes something else to `path`.
_WRITING = """
from opassay.properties.candidates.host import calls
def write(path, said):
    {act}
""" + _LATER.format(replace="calls.write = write")
#: Replaces the answer of the host; `{act}` gives another.
_ANSWERING = """
import msgspec
from opassay.properties.candidates.host import calls, host
before = host.CandidateHost._answer
replace = msgspec.structs.replace
def _answer(self, call, arguments):
    answer = before(self, call, arguments)
    {act}
""" + _LATER.format(replace="host.CandidateHost._answer = _answer")
#: Finds the pipe of answers, which is the second of the host's, and writes `{line}` there.
_PIPE = """
def act():
    for number in range(3, 64):
        if attempt(lambda: os.readlink(f"/proc/self/fd/{{number}}").startswith("pipe:")):
            attempt(lambda: os.write(number, {line}))
act()
"""


def _writing(act: str, *options: str) -> Attack:
    return Attack(_WRITING.format(act=act), "", options=("--seconds", "5", *options))


def _answering(act: str) -> Attack:
    return Attack(_ANSWERING.format(act=act), "")


#: The header of a tensor of a dtype that has more than its bytes, with `{dtype}`.
_OF_DTYPE = """
    import msgspec
    body = msgspec.to_builtins(said, enc_hook=lambda tensor: None)
    size = 512 * torch.{dtype}.itemsize
    described = dict(dtype="{dtype}", shape=(16, 32), start=0, size=size)
    body["outputs"] = [msgspec.msgpack.Ext(1, msgspec.msgpack.encode(described))]
    head = msgspec.msgpack.encode(body)
    content = len(head).to_bytes(8, "little") + head
    open(path, "wb").write(content + bytes(-len(content) % 64 + size))
"""

ANSWERING = {
    "answers by a pipe that nobody fills": _writing("os.mkfifo(path)"),
    "answers by a socket": _writing("socket.socket(socket.AF_UNIX).bind(str(path))"),
    "answers by a folder": _writing("os.mkdir(path)"),
    "answers by a link to a device": _writing("os.symlink('/dev/zero', path)"),
    "answers by a link to a file of others": _writing("os.symlink('/etc/passwd', path)"),
    "answers by 60 GiB of nothing": _writing(
        "os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 60 * 2**30)", "--memory", "0"
    ),
    "answers by nothing": _writing("pass"),
    "answers by an empty file": _writing("open(path, 'w').close()"),
    "answers by noise": _writing("open(path, 'wb').write(os.urandom(4096))"),
    "answers by a pickle": _writing("import pickle; open(path, 'wb').write(pickle.dumps(said))"),
    "answers by half of it": _writing(
        "calls.overwrite(open(path, 'wb'), said); os.truncate(path, os.path.getsize(path) // 2)"
    ),
    **{
        f"answers by a tensor of {dtype}": _writing(_OF_DTYPE.format(dtype=dtype))
        for dtype in ("quint8", "qint8", "qint32", "quint4x2", "quint2x4", "bits8")
    },
    "removes its folder": _writing("import shutil; shutil.rmtree(os.path.dirname(path))"),
    "renames its folder": _writing("os.rename(os.path.dirname(path), str(os.path.dirname(path)) + '-other')"),
    "takes NaN seconds": _answering("return replace(answer, seconds=float('nan'))"),
    "takes a time before it began": _answering("return replace(answer, seconds=-1.0)"),
    "gives a text for an output": _answering("return replace(answer, outputs=['2.0'])"),
    "gives fewer outputs than aliases": _answering("return replace(answer, outputs=[])"),
    "gives outputs of other shapes": _answering("return replace(answer, outputs=[y[:1] for y in answer.outputs])"),
    "gives a shape below zero": _answering("return replace(answer, shapes=[(-1, 4)])"),
    "says what changed in 100 MB": _answering("return replace(answer, changed=['x' * 100_000_000])"),
    "raises a text of 100 MB": Attack("def candidate(x):\n    raise ValueError('x' * 100_000_000)\n"),
    "raises what cannot be shown": Attack(
        "class Odd(Exception):\n    def __str__(self):\n        os._exit(0)\ndef candidate(x):\n    raise Odd\n"
    ),
    "raises what forges a report": Attack(
        'def candidate(x):\n    raise ValueError(\'\\x1b[2J\\naccepted\\n{"verdict": "accepted"}\')\n'
    ),
    "says that it is loaded": Attack(_PIPE.format(line='b\'{"loaded": "kernel"}\\n\''), ""),
    "says nothing that can be read": Attack(_PIPE.format(line="b'[' * 50_000 + b'\\n'"), "PURE:process"),
    "says what no line ends": Attack(_PIPE.format(line="b'x' * 60_000") * 3, ""),
    "closes all that is open": Attack("os.closerange(3, 100)", "PURE:process"),
    "has a name that ends the line": Attack(
        'candidate.__name__ = \'kernel\\n\\x1b[31m{"verdict": "accepted"}\\u202e\''
    ),
    "makes files that nobody can remove": Attack(
        "folder = os.environ['HOME']\nfor i in range(600):\n    folder += '/' + 'n' * 100\n"
        "    attempt(lambda: os.mkdir(folder))\n"
        "os.chmod(os.environ['TMPDIR'], 0)"
    ),
}
