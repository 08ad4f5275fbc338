"""Whether right choices among scores that nearly tie are ever refused, and how many are open.

    python benchmarks/near_ties.py [ROWS]

Scores of 64 experts are products over 32 elements, in float32 and bfloat16. The experts come in pairs whose weights
differ by a unit in the last place here and there, so that rounding decides within every pair. Six evaluations choose:
torch's own, sums in two other orders, float64, scores that are stored, and one that takes the last of ties. All of
their indices have to be in the sets that the balls of the scores give, for the best 1, 3 and 6 experts, for the least
one, and for all of them in order. A choice that is off by seven ranks stands beside them. 1,000,000 rows take four
minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from opassay.oracles.bound.rounding import balls
from opassay.oracles.bound.terms import PRESETS
from opassay.oracles.specs import traced

EXPERTS, WIDTH, CHUNK = 64, 32, 20_000
SPECS: dict[str, Callable[[Tensor], Tensor]] = {
    "best 1": lambda scores: scores.argmax(-1, keepdim=True),
    "best 3": lambda scores: scores.topk(3, sorted=False).indices,
    "best 6 in order": lambda scores: scores.topk(6).indices,
    "least": lambda scores: scores.min(-1, keepdim=True).indices,
    "order": lambda scores: scores.argsort(-1),
}


def pairs(dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Rows, and the weights of experts, of which each second one is nearly the one before."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(CHUNK, WIDTH, generator=generator).to(dtype)
    one = torch.randn(WIDTH, EXPERTS // 2, generator=generator).to(dtype)
    step = torch.randint(-1, 2, one.shape, generator=generator) * (torch.rand(one.shape, generator=generator) < 0.1)
    bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
    other = (one.view(bits) + step.to(bits)).view(dtype)
    return x, torch.stack([one, other], -1).flatten(1)


def by_halves(x: Tensor, w: Tensor) -> Tensor:
    half = WIDTH // 2
    return x[:, :half] @ w[:half] + x[:, half:] @ w[half:]


def one_by_one(x: Tensor, w: Tensor) -> Tensor:
    total = torch.zeros(len(x), w.shape[1], dtype=x.dtype)
    for i in reversed(range(WIDTH)):
        total = total + x[:, i, None] * w[i]
    return total


#: Scores as a kernel may have them: in the dtype, or wider.
EVALUATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "torch": lambda x, w: x @ w,
    "halves, in float32": lambda x, w: by_halves(x.float(), w.float()),
    "one by one, in float32": lambda x, w: one_by_one(x.float(), w.float()),
    "float64": lambda x, w: x.double() @ w.double(),
    "halves, stored": lambda x, w: by_halves(x.float(), w.float()).to(x.dtype),
    "from the end": lambda x, w: (x.flip(-1) @ w.flip(0)).flip(-1),
}


def choose(name: str, evaluation: str, scores: Tensor) -> Tensor:
    """The indices that an evaluation chooses; of ties the first, or from the end the last."""
    if evaluation != "from the end":
        return SPECS[name](scores)
    return scores.shape[-1] - 1 - SPECS[name](scores)


def count_refusals(dtype: torch.dtype, seed: int) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """By spec: rows with a refused right choice, rows that are open, and rows where a wrong choice is refused."""
    x, w = pairs(dtype, seed)
    terms = PRESETS["torch"].contract(str(dtype).removeprefix("torch."), "cpu", 0)
    wrong, open_, faults = (dict.fromkeys(SPECS, 0) for _ in range(3))
    scores = {name: each(x, w) for name, each in EVALUATIONS.items()}
    for name, spec in SPECS.items():
        formula = traced(lambda a, b, spec=spec: spec(a @ b), x, w)
        (choice,) = balls(formula, [x.double().numpy(), w.double().numpy()], terms)
        for evaluation, each in scores.items():
            right = choice.accepts(choose(name, evaluation, each).numpy())
            wrong[name] += int(np.count_nonzero(~right.all(-1)))
        open_[name] += len(choice.open_rows())
        moved = SPECS["order"](scores["float64"]).roll(7, -1)[:, : choice.shape[-1]].numpy()
        faults[name] += int(np.count_nonzero(~choice.accepts(moved).all(-1)))
    return wrong, open_, faults


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    alarms = 0
    for dtype in (torch.float32, torch.bfloat16):
        sums = [dict.fromkeys(SPECS, 0) for _ in range(3)]
        count = -(-rows // (2 * CHUNK))
        for seed in range(count):
            for total, part in zip(sums, count_refusals(dtype, seed), strict=True):
                for name, number in part.items():
                    total[name] += number
        for name in SPECS:
            wrong, open_, faults = (total[name] for total in sums)
            print(
                f"{str(dtype).removeprefix('torch.'):9s} {name:16s} {count * CHUNK} rows, {open_} of them open,"
                f" {len(EVALUATIONS)} evaluations: {wrong} refused; off by seven ranks: {faults} refused",
                flush=True,
            )
            alarms += wrong
    print(f"{alarms} right choices were refused")
    sys.exit(alarms > 0)


if __name__ == "__main__":
    main()
