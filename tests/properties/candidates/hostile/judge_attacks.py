"""Candidates that reach for their judge: its memory, its output, its files, its life, and what it has drawn.

Each computes what is wrong, and would be accepted if the attack came through; or it computes what is right, and would
change something else.
"""

from __future__ import annotations

from .attack import Attack

_RIGHT = "\ndef candidate(x):\n    return x * 2\n"
#: Right only where the text before has found what it looks for.
_FINDER = "\ndef candidate(x):\n    return x * 2 if FOUND else x * 0\n"

REACHING = {
    "rewrites the ruling in the judge's memory": Attack("""
import dis
from opassay.properties.candidates import judgement
def act():
    code = judgement.ruling.__code__
    at = id(code) + ctypes.string_at(id(code), sys.getsizeof(code)).index(code._co_code_adaptive)
    load = [i.offset for i in dis.get_instructions(code) if i.argval == "ACCEPTED"][0]
    start = [i.offset for i in dis.get_instructions(code) if i.argval == "Ruling" and i.offset < load][-1]
    with open(f"/proc/{JUDGE}/mem", "r+b", 0) as mem:
        mem.seek(at)
        mem.write(bytes([dis.opmap["RESUME"], 0]) + code.co_code[start:])
attempt(act)
"""),
    "reads the judge's memory": Attack(
        "FOUND = attempt(lambda: open(f'/proc/{JUDGE}/mem', 'rb', 0).readable())" + _FINDER
    ),
    "reads another process by a system call": Attack(
        """
word = ctypes.create_string_buffer(8)
own = struct.pack("PN", ctypes.addressof(word), 8)
FOUND = ctypes.CDLL(None, use_errno=True).process_vm_readv(JUDGE, own, 1, struct.pack("PN", id(0), 8), 1, 0) >= 0
"""
        + _FINDER
    ),
    "traces the judge": Attack("FOUND = ctypes.CDLL(None).ptrace(16, JUDGE, 0, 0) == 0" + _FINDER),
    "reads the judge's environment": Attack("FOUND = attempt(lambda: open(f'/proc/{JUDGE}/environ').read())" + _FINDER),
    "prints a verdict through the judge's output": Attack("""
for number in (1, 2):
    attempt(lambda: open(f"/proc/{JUDGE}/fd/{number}", "w").write('{"verdict": "accepted", "causes": []}\\n'))
"""),
    "prints a verdict of its own": Attack("""
import atexit
LINE = '{"verdict": "accepted", "causes": []}'
print(LINE, flush=True)
print(LINE, file=sys.stderr, flush=True)
os.write(1, LINE.encode() + b"\\n")
atexit.register(print, LINE)
"""),
    "plants a module for the judge's end": Attack("""
text = "import os\\nos.write(1, b'accepted'); os._exit(0)"
for folder in (HERE, os.getcwd(), os.path.dirname(HERE)):
    attempt(lambda: open(os.path.join(folder, "tabulate.py"), "w").write(text))
"""),
    "plants bytecode of the spec": Attack("""
def act():
    path = os.path.join(HERE, "spec.py")
    cache, status = importlib.util.cache_from_source(path), os.stat(path)
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    open(cache, "wb").write(head + marshal.dumps(compile(open(path).read().replace("* 2", "* 0"), path, "exec")))
attempt(act)
"""),
    "rewrites itself": Attack("attempt(lambda: open(__file__, 'a').write('# other'))" + _RIGHT, "", verdict="accepted"),
    "rewrites the spec": Attack("attempt(lambda: open(os.path.join(HERE, 'spec.py'), 'a').write('# other'))"),
    "rewrites the judge's code": Attack("""
from opassay.properties.candidates import judgement
attempt(lambda: open(os.path.realpath(judgement.__file__), "a").write("\\nRuling.REJECTED = Ruling.ACCEPTED\\n"))
"""),
    "takes all rights from the spec": Attack(
        """
SPEC = os.path.join(HERE, "spec.py")
attempt(lambda: os.chmod(SPEC, 0o600))
FOUND = os.stat(SPEC).st_mode & 0o777 == 0o600
"""
        + _FINDER,
        "",
        options=("-k", "FWD:given", "-k", "PURE:left"),
    ),
    "touches the judge's code": Attack("""
import opassay
for folder, _, names in os.walk(os.path.dirname(opassay.__file__)):
    for name in names:
        attempt(lambda: os.utime(os.path.join(folder, name)))
"""),
    "has everybody wait for files": Attack(
        """
import fcntl, opassay
signal.signal(signal.SIGIO, signal.SIG_IGN)
FILES = [open(__file__), open(opassay.__file__)]
FOUND = any(attempt(lambda: fcntl.fcntl(f, fcntl.F_SETLEASE, kind) or True) for f in FILES for kind in (0, 1))
"""
        + _FINDER
    ),
    "is told of what happens beside it": Attack(
        "import fcntl\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "FOUND = attempt(lambda: fcntl.fcntl(os.open(HERE, os.O_RDONLY), fcntl.F_NOTIFY, 1) or True)" + _FINDER
    ),
    "makes itself an administrator": Attack("FOUND = ctypes.CDLL(None).unshare(0x10000000) == 0" + _FINDER),
    "reads memory that others share": Attack(
        "FOUND = attempt(lambda: open('/dev/shm/opassay-victim').read())" + _FINDER
    ),
    "stops the judge": Attack("attempt(lambda: os.kill(JUDGE, signal.SIGSTOP))"),
    "kills the judge": Attack("attempt(lambda: os.kill(JUDGE, signal.SIGKILL))"),
    "interrupts the judge": Attack("attempt(lambda: os.kill(JUDGE, signal.SIGTERM))"),
    "kills the judge by a descriptor": Attack("attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(JUDGE), 9))"),
    "stops the judge by a child": Attack("subprocess.run(['/bin/sh', '-c', f'kill -STOP {JUDGE}'])"),
    "limits the judge": Attack("attempt(lambda: resource.prlimit(JUDGE, resource.RLIMIT_CPU, (1, 1)))"),
    "asks a server": Attack("FOUND = attempt(lambda: socket.socket(socket.AF_INET).fileno() >= 0)" + _FINDER),
    "asks a server by datagrams": Attack(
        "FOUND = attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).fileno() >= 0)" + _FINDER
    ),
    "asks the kernel for a ring": Attack(
        "FOUND = ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(256)) >= 0" + _FINDER
    ),
    "looks for a mark in its environment": Attack("FOUND = any('OPASSAY' in name for name in os.environ)" + _FINDER),
    "looks for a mark in its command line": Attack(
        "FOUND = 'judge' in open('/proc/self/cmdline').read() or 'judge' in str(sys.orig_argv)" + _FINDER
    ),
    "looks for the draws in all frames": Attack(
        """
def words():
    frame = sys._getframe()
    while frame is not None:
        yield str(frame.f_locals)
        frame = frame.f_back
TEXT = "".join(words()) + open(f"/proc/{JUDGE}/cmdline").read() + open("/proc/self/environ").read()
FOUND = "00112233445566778899aabbccddeeff"[::-1] in TEXT
"""
        + _FINDER,
        options=("--draws", "00000007ffeeddccbbaa99887766554433221100"),
    ),
    "reads a spec that lies elsewhere": Attack(
        """
def act():
    path = os.path.join(os.path.dirname(HERE), "elsewhere", "spec.py")
    return compile(open(path).read(), path, "exec")
FOUND = attempt(act)
"""
        + _FINDER
    ),
    "predicts the rows by the seed": Attack(
        """
import numpy as np
def rows():
    rng = np.random.default_rng([0, *b"FWD:given"])
    edges = np.linspace(0, 2048, 128 + 1).astype(int)
    drawn_rows = [int(rng.integers(a, b)) for a, b in zip(edges, edges[1:])]
    return [0, *drawn_rows[1:-1], 2047]
def candidate(x):
    y = torch.zeros_like(x)
    chosen = rows() if len(x) == 2048 else range(len(x))
    y[list(chosen)] = torch.softmax(x[list(chosen)], -1)
    return y
""",
        spec="large",
    ),
    "knows the given inputs by the seed": Attack("""
torch.manual_seed(0)
KNOWN = torch.randn(16, 32)
def candidate(x):
    return x * 2 if torch.equal(x, KNOWN) else x * 0
"""),
}
