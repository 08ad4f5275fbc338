"""`Function`: custom autograd functions that are right under every nesting of grad, vjp, jvp and vmap."""

from __future__ import annotations

from ..operator import torch_private as private
from . import eager, rules
from .static_types import Leaf, Pytree


class Function(eager.EagerFunction):
    """A drop-in for `torch.autograd.Function` whose `apply` works under any transform of `torch.func`.

    The static methods are torch's: `forward(*args)`, `setup_context(ctx, inputs, output)`,
    `backward(ctx, *grad_outputs)`, `jvp(ctx, *tangents)`, and `vmap(info, in_dims, *args)` or
    `generate_vmap_rule = True`. Beyond torch's contract:

    - The output may be any pytree of tensors and other values. `backward` gets one cotangent per leaf, in the order of
      `torch.utils._pytree.tree_leaves`, None for leaves that are not tensors; `jvp` returns one tangent per leaf.
    - `jvp` may itself be differentiated, in either mode and to any order.
    - `save_for_backward` and `save_for_forward` may be given different tensors in different order.
    - torch.compile breaks its graph around `apply`, and the function runs as it does without torch.compile. Of torch's
      functions it traces the static methods, and differentiates `forward` instead of calling `backward` where a
      transform is active: another result where the two differ on purpose.
    - Under a generated vmap rule `mark_dirty` and `mark_non_differentiable` mean what they mean without vmap.

    Source: torch's notes on extending torch.func, https://pytorch.org/docs/main/notes/extending.func.html.
    """

    @classmethod
    def apply(cls, *args: Leaf, **kwargs: Leaf) -> Pytree:
        """The outputs of `forward` on `args`, on the tape of every transform that is active.

        Raises:
            RuntimeError: a transform is active and the class has no `setup_context`, or no way to be vmapped.
            TypeError: the arguments do not go with the signature of `forward`.
        """
        plan = eager.plan_of(cls)
        args = eager.bind_arguments(cls, plan, args, kwargs)
        if not private.transforms_active():
            return eager.apply_eagerly(plan, args)
        if not plan.separate:
            raise RuntimeError(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must"
                f" override the setup_context staticmethod. {rules.MORE}"
            )
        return rules.custom_function_call(cls, *args)


# torch.compile looks up the code object, which the classmethod shares with the function inside it.
private.keep_out_of_graphs(
    vars(Function)["apply"].__func__, "a custom function runs as it does without torch.compile, under every transform"
)
