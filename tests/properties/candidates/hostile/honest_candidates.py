"""Right candidates that compile, start processes and threads, share memory, read and write files: all are accepted."""

from __future__ import annotations

from .attack import Attack

#: An isolated candidate must be able to do what these do.
_USUAL = "PURE:process FWD:given PURE:untouched CALLS:again SIZE:sizes PURE:left"


def _honest(text: str, spec: str = "double", codes: str = _USUAL, options: tuple[str, ...] = ()) -> Attack:
    """A right candidate, by its text, its spec, what it is asked, and further options."""
    words = tuple(word for code in codes.split() for word in ("-k", code))
    return Attack(text, "", spec, (*words, *options), "accepted")


_TWICE = """
import triton
import triton.language as tl
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
def candidate(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    twice[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
_C = "void twice(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }"
_BY_C = """
import tempfile
def build():
    folder = tempfile.mkdtemp()
    with open(folder + "/k.c", "w") as file:
        file.write('''{text}''')
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", *{flags}, "-o", folder + "/k.so", folder + "/k.c"], check=True)
    return ctypes.CDLL(folder + "/k.so")
LIBRARY = build()
def candidate(x):
    if x.dtype != torch.float32:
        raise ValueError("float32 alone")
    x = x.detach().contiguous()
    y = torch.empty_like(x)
    LIBRARY.twice(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y
"""

#: A softmax of rows, by blocks of columns with a running maximum.
_ONLINE = """
def candidate(x):
    most, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    for part in x.split(256, -1):
        larger = torch.maximum(most, part.amax(-1, keepdim=True))
        total = total * (most - larger).exp() + (part - larger).exp().sum(-1, keepdim=True)
        most = larger
    return (x - most).exp() / total
"""
HONEST = {
    "compiles by inductor": _honest(
        "fast = torch.compile(lambda x: x * 2)\ndef candidate(x):\n    return fast(x)\n", options=("--seconds", "300")
    ),
    "compiles without a graph": _honest(
        "fast = torch.compile(lambda x: x * 2, backend='eager')\ndef candidate(x):\n    return fast(x)\n"
    ),
    "compiles C": _honest(_BY_C.format(text=_C, flags="()")),
    "compiles C with OpenMP": _honest(
        _BY_C.format(
            text=_C.replace("{ for", "{\\n#pragma omp parallel for num_threads(4)\\nfor"), flags="('-fopenmp',)"
        )
    ),
    "compiles an extension of torch": _honest(
        """
from torch.utils.cpp_extension import load_inline
TEXT = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
built = load_inline("opassay_twice", TEXT, functions=["twice"], with_cuda=False)
def candidate(x):
    return built.twice(x)
""",
        options=(
            "--seconds",
            "300",
        ),
    ),
    "is a kernel of Triton, interpreted": _honest(
        _TWICE,
        codes="FWD:given PURE:left",
        options=("--interpret",),
    ),
    "computes in threads": _honest("""
from concurrent.futures import ThreadPoolExecutor
def candidate(x):
    with ThreadPoolExecutor(4) as pool:
        return torch.cat(list(pool.map(lambda part: part * 2, x.split(4)))) if len(x) else x * 2
"""),
    "computes in processes that share memory": _honest(
        """
import multiprocessing
from multiprocessing import shared_memory
import numpy as np
def double(name, shape):
    memory = shared_memory.SharedMemory(name)
    np.ndarray(shape, np.float32, memory.buf)[...] *= 2
    memory.close()
def candidate(x):
    values = x.detach().numpy()
    memory = shared_memory.SharedMemory(create=True, size=max(values.nbytes, 1))
    np.ndarray(values.shape, np.float32, memory.buf)[...] = values
    process = multiprocessing.get_context("fork").Process(target=double, args=(memory.name, values.shape))
    process.start()
    process.join()
    y = torch.from_numpy(np.ndarray(values.shape, np.float32, memory.buf).copy())
    memory.close()
    memory.unlink()
    return y
""",
        codes="FWD:given FWD:seeds PURE:left",
    ),
    "keeps memory that it shares": _honest("""
from multiprocessing import shared_memory
FACTOR = torch.full((4,), 2.0).share_memory_()
MEMORY = shared_memory.SharedMemory(create=True, size=4096)
MEMORY.buf[0] = 2
def candidate(x):
    return x * MEMORY.buf[0] * (FACTOR[0] / 2)
"""),
    "computes in NumPy": _honest(
        "def candidate(x):\n    return torch.from_numpy(x.detach().numpy() * x.detach().numpy().dtype.type(2))\n"
    ),
    "takes its time": _honest(
        "def candidate(x):\n    time.sleep(0.8)\n    return x * 2\n",
        codes="FWD:given CALLS:again PURE:left",
        options=(
            "--seconds",
            "2",
        ),
    ),
    "is large": _honest(
        "def candidate(x):\n    y = (x - x.amax(-1, keepdim=True)).exp()\n    return y / y.sum(-1, keepdim=True)\n",
        "large",
    ),
    "writes files of its own": _honest(
        """
import tempfile
def candidate(x):
    with tempfile.NamedTemporaryFile() as file, open(os.path.expanduser("~/log"), "a") as log:
        torch.save(x, file.name)
        log.write("called\\n")
        return torch.load(file.name) * 2
""",
        codes="FWD:given FWD:seeds PURE:left",
    ),
    "reads a file beside it": _honest(
        "with open(os.path.join(HERE, 'spec.py')) as file:\n    FACTOR = 2 if file.read() else 0\n"
        "def candidate(x):\n    return x * FACTOR\n"
    ),
    "imports a module beside it": _honest("import spec\ndef candidate(x):\n    return spec.reference(x)\n"),
    "has a backward of its own": _honest(
        """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
def candidate(x):
    return Double.apply(x)
""",
        codes="FWD:given VJP:grad PURE:left",
    ),
    "is an operator of a library": _honest("""
@torch.library.custom_op("opassay_hostile::twice", mutates_args=())
def candidate(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""),
    "is a script": _honest("@torch.jit.script\ndef candidate(x):\n    return x * 2\n"),
    "starts a program in each call": _honest(
        """
def candidate(x):
    words = subprocess.run([sys.executable, "-c", "print(1 + 1)"], capture_output=True, text=True, check=True)
    return x * int(words.stdout)
""",
        codes="FWD:given PURE:left",
    ),
    "prints a lot": _honest("def candidate(x):\n    print('x' * 200_000)\n    return x * 2\n"),
    "remembers what it may": _honest("""
SIZES = {}
def candidate(x):
    if x.shape not in SIZES:
        SIZES[x.shape] = torch.full(x.shape, 2, dtype=x.dtype)
    return x * SIZES[x.shape].to(x.dtype)
"""),
    "is slow to import": _honest("time.sleep(3)\ndef candidate(x):\n    return x * 2\n"),
    "tunes itself in its first call": _honest("""
BEST = []
def candidate(x):
    if not BEST:
        ways = [lambda x: x * 2, lambda x: x + x, lambda x: torch.mul(x, 2)]
        times = []
        for way in ways:
            begin = time.perf_counter()
            for _ in range(20):
                way(x)
            times.append(time.perf_counter() - begin)
        BEST.append(ways[times.index(min(times))])
    return BEST[0](x)
"""),
    "compiles for all shapes at once": _honest(
        "fast = torch.compile(lambda x: x * 2, dynamic=True, fullgraph=True)\ndef candidate(x):\n    return fast(x)\n",
        options=("--seconds", "300"),
    ),
    "compiles a large softmax": _honest(
        "@torch.compile\ndef fast(x):\n    y = (x - x.amax(-1, keepdim=True)).exp()\n"
        "    return y / y.sum(-1, keepdim=True)\ndef candidate(x):\n    return fast(x)\n",
        "large",
        options=("--seconds", "300"),
    ),
    "is large and computes by blocks": _honest(_ONLINE, "large"),
    "is large and computes in threads of its own": _honest(
        """
from concurrent.futures import ThreadPoolExecutor
def candidate(x):
    with ThreadPoolExecutor(4) as pool:
        return torch.cat(list(pool.map(lambda part: torch.softmax(part, -1), x.chunk(8))))
""",
        "large",
    ),
    "keeps a pool of threads": _honest("""
from concurrent.futures import ThreadPoolExecutor
POOL = ThreadPoolExecutor(2)
list(POOL.map(abs, range(8)))
def candidate(x):
    return torch.cat(list(POOL.map(lambda part: part * 2, x.split(4)))) if len(x) else x * 2
"""),
    "has torch use more threads for a while": _honest("""
def candidate(x):
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        return x * 2
    finally:
        torch.set_num_threads(before)
"""),
    "computes row by row": _honest(
        "double = torch.vmap(lambda row: row * 2)\ndef candidate(x):\n    return double(x)\n"
    ),
    "is traced": _honest(
        "traced = torch.jit.trace(lambda x: x * 2, torch.ones(16, 32))\ndef candidate(x):\n    return traced(x)\n"
    ),
    "computes in double precision": _honest("def candidate(x):\n    return (x.double() * 2).to(x.dtype)\n"),
    "takes memory for a while": _honest(
        "def candidate(x):\n    room = torch.ones(2**26)\n    return x * (room[0] + room[-1]).to(x.dtype)\n",
        codes="FWD:given FWD:seeds PURE:left",
    ),
    "forks in each call": _honest(
        """
def candidate(x):
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, b"2")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    factor = int(os.read(reader, 1))
    os.close(reader)
    return x * factor
""",
        codes="FWD:given FWD:seeds PURE:left",
    ),
    "has processes of a pool compute": _honest(
        """
import multiprocessing
def double(values):
    return values * 2
def candidate(x):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return torch.from_numpy(pool.map(double, [x.numpy(force=True)])[0])
""",
        codes="FWD:given PURE:left",
    ),
    "maps a file of its own": _honest(
        """
import tempfile
import numpy as np
def candidate(x):
    with tempfile.NamedTemporaryFile() as file:
        memory = np.memmap(file, np.float32, "w+", shape=(max(x.numel(), 1),))
        memory[: x.numel()] = x.numpy(force=True).reshape(-1)
        return torch.from_numpy(np.array(memory[: x.numel()]) * 2).reshape(x.shape)
""",
        codes="FWD:given FWD:seeds PURE:left",
    ),
    "runs a loop of coroutines": _honest("""
import asyncio
async def half(x):
    await asyncio.sleep(0)
    return x
async def whole(x):
    return sum(await asyncio.gather(half(x), half(x)))
def candidate(x):
    return asyncio.run(whole(x))
"""),
    "draws numbers of its own": _honest("""
DRAWS = torch.Generator().manual_seed(7)
def candidate(x):
    order = torch.randperm(len(x), generator=DRAWS)
    y = torch.empty_like(x)
    y[order] = x[order] * 2
    return y
"""),
    "warns and logs": _honest("""
import logging, warnings
def candidate(x):
    warnings.warn("twice", stacklevel=2)
    logging.getLogger("mine").warning("called with %s", tuple(x.shape))
    return x * 2
"""),
    "is a class inside and a tensor outside": _honest("""
class Marked(torch.Tensor):
    pass
def candidate(x):
    return (x.as_subclass(Marked) * 2).as_subclass(torch.Tensor)
"""),
    "is a kernel of Triton, compiled": _honest(
        _TWICE,
        codes="FWD:given PURE:left",
        options=("--compiled",),
    ),
}
