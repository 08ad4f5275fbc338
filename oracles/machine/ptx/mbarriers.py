"""mbarrier: barriers in shared memory at which threads arrive, and copies, and for whose phases threads wait.

Source: NVIDIA, PTX ISA 9.1, section 9.7.13.15: "An mbarrier object [...] tracks the number of pending arrivals, the
expected arrivals for the next phase, and tx-count"; "the current phase is complete when the count of the pending
arrivals has reached zero and tx-count has reached zero"; test_wait.parity "waits for the completion of the phase
indicated by phaseParity".

A copy that completes at a barrier is there as late as it may be: once a thread asks for it a second time, and all
arrivals have come. What a warp does after it has waited comes after what others did before they arrived; that they met
at one barrier is taken for granted, as with atomic operations (`block_order.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...verdicts.violation import Code, Violation
from .accesses import spread_over
from .books import Access
from .chunk import Chunk
from .formats import WIDTHS, WINDOWS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .operands import Reader, Step, active, address, destination, elements, reader

#: So many tests of barriers fail one after the other, with no arrival between them, where nobody will ever arrive.
_PATIENCE = 1 << 13


@dataclass
class MemoryBarrier:
    """One barrier.

    Attributes:
        count: of arrivals of a phase. pending: that are to come. transfer: bytes that are expected and not there yet.
        phase: its number. copies: that complete here: what each writes, the bits, and how many bytes it counts; one of
            cp.async counts for one. testers: threads that have asked in vain since the phase began.
    """

    count: int
    pending: int
    transfer: int = 0
    phase: int = 0
    copies: list[tuple[Access, list[Lanes], int]] = field(default_factory=list)
    testers: set[int] = field(default_factory=set)

    def arrive(self, chunk: Chunk, lane: int, arrivals: int, label: str) -> None:
        """A thread arrives so many times.

        Raises:
            Violation: fewer are to come.
        """
        if arrivals > self.pending:
            text = f"{label}: {{}} arrives where {self.pending} arrivals are to come"
            raise _fault(chunk, lane, text, Code.DIVERGENT)
        self.pending -= arrivals

    def settle(self, chunk: Chunk, waited_for: bool) -> None:
        """End the phase if all has come; where somebody waits, copies come now."""
        if waited_for and not self.pending:
            copies, self.copies = self.copies, []
            for access, words, count in copies:
                chunk.shared.end(access, words)
                chunk.shared.meet(access.threads)
                self.transfer -= count
        if not self.pending and not self.transfer:
            self.pending, self.phase = self.count, self.phase + 1
            self.testers.clear()

    def is_past(self, chunk: Chunk, lane: int, awaited: int, parity: bool) -> bool:
        """Whether the phase of a parity, or a phase, is complete for a thread that waits for it.

        Copies come when somebody asks again: who goes on whatever the answer was has not waited.
        """
        if (self.phase & 1 if parity else self.phase) == awaited:
            self.settle(chunk, lane in self.testers)
            self.testers.add(lane)
        return (self.phase & 1 if parity else self.phase) != awaited


def shared_address(instruction: Instruction, operand: Operand, entry: Listing) -> Reader:
    """A function that gives addresses in the shared memory of a block, also of those that name no space."""
    if any(name.startswith("shared") for name in instruction.modifiers):
        return address(instruction, operand, entry, "shared")
    where = address(instruction, operand, entry, "generic")
    return lambda chunk: where(chunk) - WINDOWS["shared"]


def find_barrier(chunk: Chunk, lane: int, at: int, label: str, home: int | None = None) -> MemoryBarrier:
    """The barrier at an address of a thread's block, or of another one of its cluster.

    Raises:
        Violation: none is there.
    """
    barrier: MemoryBarrier | None = chunk.begun.barriers.get((int(chunk.block[lane]) if home is None else home, at))
    if barrier is None:
        place = "" if home is None else f" of block {int(chunk.blocks[home])}"
        text = f"{label}: {{}} finds no barrier at byte {at} of shared memory{place}"
        raise _fault(chunk, lane, text, Code.UNDEFINED)
    return barrier


def locate(chunk: Chunk, lane: int, at: int, label: str) -> tuple[int, int]:
    """The block of an address of a thread in the shared memory of its cluster, and the place there; as `find_home`."""
    homes, places = chunk.find_home(np.array([at]), np.array([lane]), label)
    return int(chunk.block[lane] if homes is None else homes[0]), int(places[0])


def _fault(chunk: Chunk, lane: int, title: str, code: Code) -> Violation:
    return Violation(code, title.format(chunk.name(lane)))


def barrier_in_memory(instruction: Instruction, entry: Listing) -> Step:
    """mbarrier: each of its instructions."""
    verb = instruction.modifiers[0]
    if verb in ("test_wait", "try_wait"):
        return _test(instruction, entry)
    if verb in ("init", "inval"):
        return _initialise(instruction, entry)
    return _arrive(instruction, entry)


def _initialise(instruction: Instruction, entry: Listing) -> Step:
    where, place = active(instruction), shared_address(instruction, instruction.operands[0], entry)
    count = reader(instruction, (*instruction.operands, "0")[1], "u32", entry)
    ends, label = instruction.modifiers[0] == "inval", str(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        for lane, at, number in zip(lanes, place(chunk)[lanes], chunk.spread(count(chunk))[lanes], strict=True):
            key = int(chunk.block[lane]), int(at)
            if at % 8:
                raise _fault(chunk, lane, f"{label}: {{}} has a barrier at no multiple of 8", Code.MISALIGNED)
            if ends:
                find_barrier(chunk, lane, int(at), label)
                del chunk.begun.barriers[key]
            else:
                chunk.begun.barriers[key] = MemoryBarrier(int(number), int(number))

    return step


def _arrive(instruction: Instruction, entry: Listing) -> Step:
    """arrive, arrive_drop, arrive.expect_tx, expect_tx and complete_tx."""
    verb, expects = instruction.modifiers[0], "expect_tx" in instruction.modifiers
    operands = list(instruction.operands)
    target = operands.pop(0) if verb.startswith("arrive") and not str(operands[0]).startswith("[") else "_"
    place = shared_address(instruction, operands[0], entry)
    amount = reader(instruction, (*operands, "1")[1], "u32", entry)
    if target != "_" and "shared::cluster" in instruction.modifiers:
        raise unknown(instruction, "a barrier of another block gives no state")
    name = "" if target == "_" else destination(instruction, target, entry)
    where, label = active(instruction), str(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        lanes = chunk.select_lanes(threads)
        tokens = np.zeros(lanes.size, np.uint64)
        chunk.shared.meet(lanes)
        for i, (lane, at, number) in enumerate(
            zip(lanes, place(chunk)[lanes], chunk.spread(amount(chunk))[lanes], strict=True)
        ):
            home, there = locate(chunk, lane, int(at), label)
            barrier = find_barrier(chunk, lane, there, label, home)
            tokens[i] = barrier.phase
            if expects or verb == "complete_tx":
                barrier.transfer += int(number) if expects else -int(number)
            if verb.startswith("arrive"):
                arrivals = 1 if expects else int(number)
                barrier.arrive(chunk, lane, arrivals, label)
                barrier.count -= arrivals if verb == "arrive_drop" else 0
            barrier.settle(chunk, False)
        chunk.begun.tests = 0
        if name:
            chunk.write(name, spread_over(chunk, lanes, tokens, threads), threads)

    return step


def store_behind_barrier(instruction: Instruction, entry: Listing) -> Step:
    """st.async: a store to a block of the cluster, there once its barrier, which counts the bytes, is waited for."""
    target, source, gate = instruction.operands
    width, label, where = WIDTHS[instruction.kind], str(instruction), active(instruction)
    readers = [reader(instruction, each, f"b{8 * width}", entry) for each in elements(source)]
    place, gates = (shared_address(instruction, operand, entry) for operand in (target, gate))

    def step(chunk: Chunk) -> None:
        values = [chunk.spread(read(chunk)) for read in readers]
        for lane in chunk.select_lanes(where(chunk)).tolist():
            home, at = locate(chunk, lane, int(place(chunk)[lane]), label)
            of_gate, gate_at = locate(chunk, lane, int(gates(chunk)[lane]), label)
            if of_gate != home:
                raise unknown(instruction, "a barrier in another block than the place")
            deliver(chunk, lane, (home, at), (width, [value[[lane]] for value in values]), (gate_at, label))

    return step


def deliver(
    chunk: Chunk, lane: int, place: tuple[int, Lanes], bits: tuple[int, list[Lanes]], gate: tuple[int, str]
) -> None:
    """Have bits come into shared memory by themselves; a barrier there counts them.

    Args:
        lane: the thread that sends them. place: whose memory, and where in it. bits: bytes of an element, and elements
            in a row. gate: where the barrier is, and the instruction in words.
    """
    (home, at), (width, words), (gate_at, label) = place, bits, gate
    barrier, places = find_barrier(chunk, lane, gate_at, label, home), np.atleast_1d(at)
    base, many = home * chunk.context.shared, np.full(places.size, lane)
    access = Access(places + base, many, width, len(words), label, np.full(places.size, home))
    chunk.shared.begin(access, words)
    barrier.copies.append((access, words, places.size * access.whole))
    chunk.begun.tests = 0


def arrive_behind_copies(instruction: Instruction, entry: Listing) -> Step:
    """cp.async.mbarrier.arrive: what a thread has begun to copy completes at a barrier; .noinc: as an arrival."""
    place, where = shared_address(instruction, instruction.operands[0], entry), active(instruction)
    counts, label = "noinc" in instruction.modifiers, str(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        places = place(chunk)
        barriers = {lane: find_barrier(chunk, lane, int(places[lane]), label) for lane in lanes.tolist()}
        chunk.shared.meet(lanes)
        for each in chunk.begun.copies.wait(lanes, None):
            of_threads = [barriers[thread] for thread in each.access.threads.tolist()]
            for barrier in {id(barrier): barrier for barrier in of_threads}.values():
                own = each.choose(np.array([other is barrier for other in of_threads]))
                barrier.copies.append((own.access, own.words or [], 1))
                barrier.transfer += 1
        for lane, barrier in barriers.items():
            barrier.arrive(chunk, lane, int(counts), label)
            barrier.settle(chunk, False)
        chunk.begun.tests = 0

    return step


def _test(instruction: Instruction, entry: Listing) -> Step:
    """test_wait and try_wait: whether the phase of a parity, or that of a token, is complete."""
    target, operand, expected, *_ = instruction.operands
    name, place = destination(instruction, target, entry), shared_address(instruction, operand, entry)
    parity, where, label = "parity" in instruction.modifiers, active(instruction), str(instruction)
    phase = reader(instruction, expected, "u32" if parity else "u64", entry)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        lanes = chunk.select_lanes(threads)
        awaited = chunk.spread(phase(chunk))[lanes]
        if parity:  # Of it the last bit counts: compilers write -1 for odd phases.
            awaited = awaited & 1
        keys = [*zip(chunk.block[lanes].tolist(), place(chunk)[lanes].tolist(), awaited.tolist(), strict=True)]
        answers: dict[tuple[int, int, int], bool] = {}
        for lane, key in zip(lanes.tolist(), keys, strict=True):
            if key not in answers:
                answers[key] = find_barrier(chunk, lane, key[1], label).is_past(chunk, lane, key[2], parity)
        done = np.array([answers[key] for key in keys], bool)
        chunk.begun.tests = 0 if done.any() else chunk.begun.tests + 1
        if chunk.begun.tests > _PATIENCE:
            text = f"{label}: {{}} waits for a phase that nobody completes"
            raise _fault(chunk, int(lanes[0]), text, Code.DIVERGENT)
        chunk.shared.meet(lanes[done], releases=False)
        chunk.write(name, spread_over(chunk, lanes, done, threads), threads)

    return step
