"""A kernel, ready to be executed: its instructions as steps, each a function of the running threads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from ..compiling import ARCHITECTURE
from .accesses import copy as copy_shared
from .accesses import is_strong, load, store
from .arithmetic import compare_pairs
from .atomics import update
from .bulk_copies import copy_in_bulk
from .clusters import map_shared
from .contraction import contract
from .extern import call_outside, trap
from .flow import barrier, branch, end, fence, rank_blocks
from .grammar import require_known, unknown
from .integers import carry
from .listing import Instruction, Listing, read_entry
from .mbarriers import arrive_behind_copies, barrier_in_memory, store_behind_barrier
from .moves import compute, create_policy, move
from .operands import Step
from .space import WARP
from .tensor_cores import multiply_matrices
from .tensor_maps import change_map
from .warpgroups import GROUP, multiply_groups
from .warps import active_mask, elect, load_matrix, match, reduce, shuffle, store_matrix, vote
from .wmma import fragments
from .wraps import Wraps, watch

_MAKERS: dict[str, Callable[[Instruction, Listing], Step]] = {
    "mov": move, "ld": load, "st": store, "cp": copy_shared, "bra": branch, "ret": end, "exit": end, "bar": barrier,
    "shfl": shuffle, "redux": reduce, "ldmatrix": load_matrix, "stmatrix": store_matrix, "vote": vote, "match": match,
    "activemask": active_mask, "createpolicy": create_policy, "call": call_outside, "trap": trap, "atom": update,
    "wgmma": multiply_groups, "wmma": fragments, "mma": multiply_matrices, "red": update,
    "barrier": barrier, "mbarrier": barrier_in_memory, "mapa": map_shared,
    "getctarank": map_shared, "tensormap": change_map, "elect": elect,
    # Of these a fence alone means something for one launch, whose threads take no time.
    **dict.fromkeys(("fence", "membar", "setmaxnreg", "nanosleep", "prefetch", "prefetchu", "griddepcontrol"), fence),
}  # fmt: skip


#: How an instruction begins by which threads wait for a barrier in memory.
_WAITS = (("try_wait",), ("test_wait",))


class Kernel:
    """An entry of PTX.

    Args:
        text: of a module. name: of the entry; by default the first one.

    Attributes:
        entry: as it was read. steps: of every basic block. ranks: the order of blocks in which parted threads run.
        waits: whether a thread may wait for what another one does to memory. joint: whether several blocks may
            change one element, or wait for each other.
        together: how many threads run together, whatever the order of warps: a warp, or with wgmma four.

    Raises:
        Unsupported: an instruction, a modifier or an operand that no meaning is built for, wherever in the text.
    """

    def __init__(self, text: str, name: str = "") -> None:
        self.entry = read_entry(text, name)
        self.entry.blocks = contract(self.entry.blocks)
        every = [instruction for block in self.entry.blocks for instruction in block]
        self.waits = any(each.name == "atom" or is_strong(each) or each.modifiers[:1] in _WAITS for each in every)
        apart = [each for each in every if not {"shared", "shared::cta", "shared::cluster"} & {*each.modifiers}]
        self.joint = any(each.name in ("atom", "red") or is_strong(each) for each in apart)
        self.joint |= any(each.modifiers[:1] == ("reduce",) for each in every)
        self.together = GROUP if any(each.name == "wgmma" for each in every) else WARP
        for each in every:
            if each.name == "tcgen05":
                text = "tensor memory is not executed; Triton takes wgmma for sm_90, and mma.sync for sm_80:"
                raise unknown(each, f"{text} set {ARCHITECTURE}=sm_90")
        self.steps = [[self._step(instruction) for instruction in block] for block in self.entry.blocks]
        self.ranks = rank_blocks(self.entry)

    def watched(self, wraps: Wraps) -> Kernel:
        """The same, which notes what wraps and which addresses come of that."""
        twin = copy.copy(self)
        pairs = zip(self.entry.blocks, self.steps, strict=True)
        twin.steps = [[watch(i, step, wraps) for i, step in zip(*pair, strict=True)] for pair in pairs]
        return twin

    def _step(self, instruction: Instruction) -> Step:
        require_known(instruction)
        if "L2::cache_hint" in instruction.modifiers:  # a policy, behind the other operands
            instruction = replace(instruction, operands=instruction.operands[:-1])
        if instruction.name in ("addc", "subc", "madc") or "cc" in instruction.modifiers:
            return carry(instruction, self.entry)
        if instruction.name == "cp" and "bulk" in instruction.modifiers:
            return copy_in_bulk(instruction, self.entry)
        if instruction.name == "cp" and "mbarrier" in instruction.modifiers:
            return arrive_behind_copies(instruction, self.entry)
        if instruction.name == "st" and "async" in instruction.modifiers:
            return store_behind_barrier(instruction, self.entry)
        if instruction.name == "setp" and instruction.modifiers[-1].endswith("x2"):
            return compare_pairs(instruction, self.entry)
        return _MAKERS.get(instruction.name, compute)(instruction, self.entry)
