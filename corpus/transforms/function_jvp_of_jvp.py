"""`torch.autograd.Function`: forward mode over forward mode gives 0 for the second derivative

What `save_for_forward` kept has no tangent of the outer level when the function's own jvp reads it.
Proof: (x²)″ = 2.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import twice_forward
from corpus.seen import custom
from opassay.impl import Function


class Square(torch.autograd.Function):
    generate_vmap_rule = True
    forward = staticmethod(lambda x: x * x)
    backward = staticmethod(lambda ctx, g: 2 * ctx.saved_tensors[0] * g)
    jvp = staticmethod(lambda ctx, tangent: 2 * ctx.saved_tensors[0] * tangent)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


PARTS = ("generate_vmap_rule", "forward", "backward", "jvp", "setup_context")
RIGHT = type("Right", (Function,), {part: vars(Square)[part] for part in PARTS})
CLAIM = custom("ORD2", [(torch.tensor([3.0, -0.5]),)], Square, right=RIGHT)
run(__name__, Bug("pytorch/pytorch#197867", "2026-09", lambda: twice_forward(Square.apply, 3.0), 2.0, CLAIM))
