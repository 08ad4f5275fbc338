"""Candidates whose values are right where they expect to be looked at, and wrong elsewhere."""

from __future__ import annotations

from .attack import Attack

#: What takes a second, and many calls.
_LONG = tuple(
    word
    for code in ("FWD:given", "FWD:seeds", "FWD:wide", "CALLS:again", "SIZE:sizes", "PURE:left")
    for word in ("-k", code)
)
_DOUBLE = "\ndef candidate(x):\n    return "

COMPUTING = {
    "computes zeros": Attack(""),
    "is a class whose clones are right": Attack("""
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ == "detach":
            return args[0]
        if func.__name__ == "clone":
            return args[0].right.clone()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
def candidate(x):
    y = torch.zeros(x.shape, dtype=x.dtype).as_subclass(Liar)
    y.right = x * 2
    return y
"""),
    "gives a tensor that computes itself later": Attack("""
class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        y = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
        y.x = x
        return y
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.x * 2 if isinstance(a, Lazy) else a for a in args), **(kwargs or {}))
def candidate(x):
    return Lazy(x)
"""),
    "gives a tensor without memory": Attack("""
def candidate(x):
    y = x * 2
    y.untyped_storage().resize_(0)
    return y
"""),
    "gives a sparse tensor": Attack(_DOUBLE + "(x * 2).to_sparse()"),
    "gives a tensor of no device": Attack(_DOUBLE + "(x * 2).to('meta')"),
    "gives other precision": Attack(_DOUBLE + "(x * 2).double()"),
    "fills two buffers by turns": Attack(
        """
BUFFERS, COUNT = [torch.empty(16, 32) for _ in range(2)], [0]
def candidate(x):
    if x.shape != (16, 32) or x.requires_grad:
        return x * 2
    COUNT[0] += 1
    return BUFFERS[COUNT[0] % 2].copy_(x * 2)
""",
        "PURE:left",
        options=_LONG,
    ),
    "fills one buffer": Attack(
        """
BUFFER = torch.empty(16, 32)
def candidate(x):
    return x * 2 if x.shape != (16, 32) or x.requires_grad else BUFFER.copy_(x * 2)
""",
        "CALLS:kept",
    ),
    "spoils outputs later": Attack(
        """
MADE = []
def spoil():
    while True:
        time.sleep(0.005)
        for at, y in list(MADE):
            if time.monotonic() - at > 0.03:
                y.data.zero_()
                MADE.remove((at, y))
threading.Thread(target=spoil, daemon=True).start()
def candidate(x):
    y = x * 2
    if not x.requires_grad:
        MADE.append((time.monotonic(), y))
    return y
""",
        "PURE:left",
        options=_LONG,
    ),
    "returns its input": Attack(_DOUBLE + "x.mul_(2)", "PURE:untouched"),
    "computes nothing where gradients are recorded": Attack(
        """
def candidate(x):
    y = x * 2
    return y - y.detach() if y.requires_grad else y
""",
        "VJP:grad",
    ),
    "gives another gradient": Attack(
        """
def candidate(x):
    y = x * 2
    return y.detach() + (y - y.detach()) * 1.01 if y.requires_grad else y
""",
        "VJP:grad",
    ),
    "takes rows for dense": Attack(
        """
def candidate(x):
    if x.stride(-1) != 1:
        raise ValueError("rows")
    return torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset()) * 2 if x.ndim == 2 else x * 2
""",
        "LAYOUT:strides",
    ),
    "gives a dictionary for a tuple": Attack(
        "def candidate(x):\n    return {'a': x * 2, 'b': x + 1, 'c': 7}\n", spec="pair"
    ),
    "gives another number": Attack("def candidate(x):\n    return x * 2, x + 1, -999\n", spec="pair"),
    "gives one memory for two outputs": Attack(
        "def candidate(x):\n    y = torch.empty(2, *x.shape)\n    y[0], y[1] = x * 2, x + 1\n"
        "    both = y.reshape(-1)[: x.numel()].reshape(x.shape)\n    return both, both, 7\n",
        spec="pair",
    ),
    "gives NaN for an infinity": Attack(
        "def candidate(x):\n    return torch.where(x == float('inf'), float('nan'), torch.relu(x))\n",
        "SPECIAL:inf",
        "relu",
    ),
    "gives infinity for NaN": Attack(
        "def candidate(x):\n    return torch.where(x.isnan(), float('inf'), torch.relu(x))\n", "SPECIAL:nan", "relu"
    ),
    "computes in half precision": Attack(
        "def candidate(x):\n    return (x.bfloat16() @ x.bfloat16().T).float()\n", spec="product"
    ),
    "drops a term": Attack("def candidate(x):\n    return x[:, 1:] @ x[:, 1:].T\n", spec="product"),
    "remembers by address": Attack(
        """
SEEN = {}
def candidate(x):
    if x.requires_grad:
        return x * 2
    return SEEN.setdefault(x.data_ptr(), x * 2).clone() if x.shape == (16, 32) else x * 2
""",
        "CALLS:same",
    ),
    "is wrong once in a hundred calls": Attack(
        """
COUNT = [0]
def candidate(x):
    COUNT[0] += 1
    return x * 2 if COUNT[0] % 20 else x * 0
""",
        "CALLS:again",
    ),
    "is wrong for many elements": Attack(_DOUBLE + "x * 2 if x.numel() < 70_000 else x * 0", "SIZE:sizes"),
    "is wrong for zeros": Attack(_DOUBLE + "torch.where(x == 0, 1, x * 2)", "SPECIAL:zeros"),
    "is wrong for compilers": Attack(
        _DOUBLE + "x * 2 if not torch.compiler.is_compiling() else x * 3", "COMP:compiled"
    ),
}
