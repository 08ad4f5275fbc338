"""Right candidates that compile, start processes and threads, share memory, read and write files: all are accepted."""

from __future__ import annotations

from .attack import Attack

#: An isolated candidate must be able to do what these do.
_USUAL = "PROCESS GIVEN UNTOUCHED AGAIN SIZES LEFT"


def _honest(text: str, spec: str = "double", codes: str = _USUAL, options: tuple[str, ...] = ()) -> Attack:
    """A right candidate, by its text, its spec, what it is asked, and further options."""
    words = tuple(word for code in codes.split() for word in ("-k", code))
    return Attack(text, "", spec, (*words, *options), "accepted")


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

HONEST = {
    "compiles by inductor": _honest("fast = torch.compile(lambda x: x * 2)\ndef candidate(x):\n    return fast(x)\n"),
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
        """
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
""",
        codes="GIVEN LEFT",
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
        codes="GIVEN SEEDS LEFT",
    ),
    "computes in NumPy": _honest(
        "def candidate(x):\n    return torch.from_numpy(x.detach().numpy() * x.detach().numpy().dtype.type(2))\n"
    ),
    "takes its time": _honest(
        "def candidate(x):\n    time.sleep(0.8)\n    return x * 2\n",
        codes="GIVEN AGAIN LEFT",
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
        codes="GIVEN SEEDS LEFT",
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
        codes="GIVEN GRAD LEFT",
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
        codes="GIVEN LEFT",
    ),
    "prints a lot": _honest("def candidate(x):\n    print('x' * 200_000)\n    return x * 2\n"),
    "remembers what it may": _honest("""
SIZES = {}
def candidate(x):
    if x.shape not in SIZES:
        SIZES[x.shape] = torch.full(x.shape, 2, dtype=x.dtype)
    return x * SIZES[x.shape].to(x.dtype)
"""),
}
