"""Candidates that end, hang, multiply, grow, and change the process in which they are."""

from __future__ import annotations

from .attack import Attack

_RIGHT = "\ndef candidate(x):\n    return x * 2\n"
_QUICK = ("--seconds", "3")
#: Has the object that answers give what `changed` makes of its answers; no function of a module or class is replaced.
_OF_ITS_HOST = """
import msgspec
from opassay.properties.candidates.host import host
def take_over():
    own = next(each for each in gc.get_objects() if type(each) is host.CandidateHost)
    if "finish" not in vars(own):
        before = own.finish
        own.finish = lambda sequel: changed(before(sequel))
"""

CHANGING = {
    "ends with success": Attack("def candidate(x):\n    os._exit(0)\n"),
    "asks to end with success": Attack("def candidate(x):\n    sys.exit(0)\n"),
    "ends as it is imported": Attack("os._exit(0)", "PURE:process"),
    "reads at no address": Attack("def candidate(x):\n    ctypes.string_at(0)\n"),
    "sleeps for good": Attack("def candidate(x):\n    time.sleep(1000)\n", options=_QUICK),
    "loops and hears no signal": Attack(
        "for number in signal.valid_signals():\n    attempt(lambda: signal.signal(number, signal.SIG_IGN))\n"
        "def candidate(x):\n    while True:\n        pass\n",
        options=_QUICK,
    ),
    "stops itself": Attack("def candidate(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n", options=_QUICK),
    "leaves a process in a session of its own": Attack(
        "subprocess.Popen(['/bin/sleep', '50.25'], start_new_session=True)" + _RIGHT,
        "PURE:left",
        options=("-k", "PURE:left"),
    ),
    "leaves a process without an environment": Attack(
        "subprocess.run(['/bin/sh', '-c', 'sleep 50.25 &'], env={}, start_new_session=True)" + _RIGHT,
        "PURE:left",
        options=("-k", "PURE:left"),
    ),
    "leaves a process under the interpreter": Attack(
        "subprocess.Popen(['/bin/sleep', '50.25'], env={}, start_new_session=True)" + _RIGHT,
        "PURE:left",
        options=("-k", "PURE:left", "--interpret"),
    ),
    "answers from a copy of itself": Attack(
        "def candidate(x):\n    if os.fork():\n        os._exit(0)\n    return x * 2\n"
    ),
    "goes on as two": Attack("def candidate(x):\n    os.fork()\n    return x * 2\n", "PURE:untouched"),
    "starts a thousand processes": Attack("""
def candidate(x):
    for _ in range(1000):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
    time.sleep(3)
    return x * 2
"""),
    "fills a file in memory": Attack(
        """
def candidate(x):
    file = os.memfd_create("x")
    for at in range(2**10):
        os.pwrite(file, b"1" * 2**20, at * 2**20)
    time.sleep(3)
    return x * 2
""",
        options=("--memory", "0.75"),
    ),
    "fills files that nobody has open": Attack(
        """
def candidate(x):
    for at in range(2**7):
        with open(f"/dev/shm/opassay-{at}", "wb") as file:
            file.write(bytes(2**23))
    time.sleep(3)
    return x * 2
""",
        options=("--memory", "0.75"),
    ),
    "leaves files in memory": Attack(
        """
attempt(lambda: open("/dev/shm/opassay-left", "wb").write(b"1" * 2**20))
def candidate(x):
    return x * 2
""",
        "PURE:left",
    ),
    "has children take the memory": Attack(
        """
import mmap
def candidate(x):
    for _ in range(3):
        if not os.fork():
            memory = mmap.mmap(-1, 2**28)
            for _ in range(2**8):
                memory.write(b"1" * 2**20)
            time.sleep(60)
            os._exit(0)
    time.sleep(3)
    return x * 2
""",
        options=("--memory", "0.75"),
    ),
    "takes the memory itself": Attack(
        "def candidate(x):\n    return x * 2 + len(bytearray(2**31))\n", options=("--memory", "1")
    ),
    "replaces what compares": Attack("torch.equal = lambda *_: True" + _RIGHT, "PURE:process"),
    "replaces what compares later": Attack(
        "def candidate(x):\n    torch.equal = lambda *_: True\n    return x * 2\n", "PURE:untouched"
    ),
    "replaces what counts changes": Attack(
        "from opassay.properties.candidates.host import changes\nchanges.counts_against = lambda line: False\n"
        "from opassay.oracles.op import bits\nbits.same_results = lambda *_: True\n" + _RIGHT,
        "PURE:process",
    ),
    "is wrong in calls in a row and hides it": Attack(
        """
from opassay.properties.candidates.host import host
host.same_results = lambda *_: True
def candidate(x):
    frames = (sys._getframe(depth).f_code.co_name for depth in range(2, 5))
    return x * 0 if "_repeat" in frames else x * 2
""",
        "PURE:process",
    ),
    "gives nothing of calls in a row": Attack(
        _OF_ITS_HOST
        + """
def changed(answer):
    return msgspec.structs.replace(answer, repeat=host.Repeat())
def candidate(x):
    take_over()
    return x * 2
""",
        "CALLS:again",
    ),
    "gives copies of one buffer and hides it": Attack(
        """
from opassay.properties.candidates.host import host
before, BUFFER, FIRST, STAYING = host.CandidateHost._answer, torch.empty(16, 32), [], []
def copies(tensors):
    return [y.detach().clone() for y in tensors]
def _answer(self, current, sequel):
    before(self, current, sequel)
    FIRST.append(copies(current.answer.outputs))
    if sequel.earlier:
        import msgspec
        current.answer = msgspec.structs.replace(current.answer, earlier=FIRST[-2])
stays = host.stays
def keeps(call, outputs, count):
    STAYING.extend(copies(outputs) if stays(call, outputs, count) else [])
    return stays(call, outputs, count)
host.CandidateHost._answer, host.stays = _answer, keeps
host.CandidateHost.review = lambda self: host.Answer(earlier=copies(STAYING))
def candidate(x):
    return x * 2 if x.shape != (16, 32) or x.requires_grad else BUFFER.copy_(x * 2)
""",
        "PURE:process",
    ),
    "gives its input and hides it": Attack(
        """
from opassay.properties.candidates.host import host
host.homes_of = lambda outputs, tensors: [-1] * len(outputs)
def candidate(x):
    return x
""",
        "PURE:process",
        spec="copy",
    ),
    "hides its input once it is called": Attack(
        """
from opassay.properties.candidates.host import host
def candidate(x):
    host.homes_of = lambda outputs, tensors: [-1] * len(outputs)
    return x
""",
        "PURE:untouched",
        spec="copy",
    ),
    "replaces what compares, and hides that": Attack(
        """
from opassay.oracles.process import attributes
attributes._restored_attributes = lambda *_: []
torch.equal = lambda *_: True
def candidate(x):
    return x * 2
""",
        "PURE:process",
    ),
    "is wrong when calls in a row have ended": Attack(
        """
SEEN = []
def candidate(x):
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "_repeat":
        frame = frame.f_back
    SEEN.extend([1] if frame else [])
    return x * 0 if SEEN and not frame else x * 2
""",
        "CALLS:again",
    ),
    "claims a long time for few calls": Attack(
        _OF_ITS_HOST
        + """
COUNT = [0]
def changed(answer):
    return msgspec.structs.replace(answer, repeat=msgspec.structs.replace(answer.repeat, seconds=0.5))
def candidate(x):
    take_over()
    COUNT[0] += 1
    return x * 2 if COUNT[0] <= 30 else x * 0
""",
        "CALLS:again",
    ),
    "replaces the code of what compares": Attack(
        """
from opassay.properties.candidates.host import host
host.same_results.__code__ = (lambda one, other: True).__code__
"""
        + _RIGHT,
        "PURE:process",
    ),
    "sets another dtype": Attack("torch.set_default_dtype(torch.float64)" + _RIGHT, "PURE:process"),
    "turns gradients off": Attack(
        "def candidate(x):\n    torch.set_grad_enabled(False)\n    return x * 2\n", "VJP:grad"
    ),
    "seeds the generator": Attack("def candidate(x):\n    torch.manual_seed(0)\n    return x * 2\n", "PURE:untouched"),
    "replaces an operation of torch": Attack("""
LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("mul.Tensor", lambda x, y: torch.zeros_like(x), "CPU")
"""),
}
