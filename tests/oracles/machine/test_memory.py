"""The memory of a launch: every violation on a planted fault, none on what is right, and the bytes that are booked."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from opassay.oracles.machine.memory import GUARD, Book, Memory, Traffic
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation

ITEM = 4


def two() -> tuple[Memory, int, int]:
    """The memory of two operands of ten float32 numbers, and where each begins."""
    operands = [torch.arange(10.0), torch.zeros(10)]
    memory = Memory("planted", operands)
    return memory, memory.address(operands[0]), memory.address(operands[1])


def at(start: int, *elements: int) -> np.ndarray:
    """Addresses of elements of float32."""
    return np.array([start + ITEM * element for element in elements], dtype=np.uint64)


def run(memory: Memory, number: int, *steps: tuple[str, np.ndarray]) -> None:
    """A program that does some steps: ("load" or "store", addresses), or ("barrier", anything)."""
    memory.begin(number)
    for verb, addresses in steps:
        memory.barrier() if verb == "barrier" else getattr(memory, verb)(addresses, ITEM)
    memory.end()


def code_of(memory: Memory, *programs: tuple[tuple[str, np.ndarray], ...]) -> str:
    """The code of what is wrong with programs, which run one after another; "" where nothing is."""
    try:
        for number, steps in enumerate(programs):
            run(memory, number, *steps)
    except Violation as error:
        return error.code.value
    return ""


# ----------------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize("verb", ["load", "store"])
@pytest.mark.parametrize("element", [-1, 10, -GUARD, GUARD])
def test_an_address_outside_of_every_operand(verb: str, element: int) -> None:
    memory, first, _ = two()
    assert code_of(memory, ((verb, at(first, 0, element)),)) == Code.OUT_OF_BOUNDS


@pytest.mark.parametrize("verb", ["load", "store"])
def test_the_first_and_the_last_element_are_inside(verb: str) -> None:
    memory, first, second = two()
    assert code_of(memory, ((verb, at(first, 0, 9)), (verb, at(second, 0, 9)))) == ""


def test_an_item_that_ends_beyond_the_operand() -> None:
    memory, first, _ = two()
    assert code_of(memory, (("load", at(first, 9) + np.uint64(2)),)) == Code.OUT_OF_BOUNDS


def test_what_a_strided_operand_leaves_out_is_outside() -> None:
    operand = torch.arange(12.0).reshape(3, 4)[:, :3]
    for element, code in ((2, ""), (3, Code.OUT_OF_BOUNDS), (4, ""), (10, ""), (11, Code.OUT_OF_BOUNDS)):
        memory = Memory("planted", [operand])
        assert code_of(memory, (("load", at(memory.address(operand), element)),)) == code


@pytest.mark.parametrize(("element", "code"), [(0, ""), (9, ""), (-1, Code.OUT_OF_BOUNDS), (10, Code.OUT_OF_BOUNDS)])
def test_one_load_may_take_elements_of_several_operands(element: int, code: str) -> None:
    for which in range(2):
        memory, *starts = two()
        addresses = np.concatenate([at(starts[1], 5, 2), at(starts[0], 3, 7), at(starts[which], element)])
        assert code_of(memory, (("load", addresses),)) == code
        assert code or memory.traffic().loaded == 5 * ITEM


def test_two_operands_may_share_a_storage() -> None:
    whole = torch.arange(12.0)
    memory = Memory("planted", [whole[:4], whole[8:]])
    start = memory.address(whole[:4])
    assert memory.address(whole[8:]) == start + 8 * ITEM
    assert code_of(memory, (("load", at(start, 0, 3, 8, 11)),)) == ""
    assert code_of(memory, (("load", at(start, 4)),)) == Code.OUT_OF_BOUNDS


def test_operands_without_elements_have_an_address_and_no_bytes() -> None:
    operands = [torch.zeros(0), torch.zeros(3)]
    memory = Memory("planted", operands)
    assert code_of(memory, (("load", at(memory.address(operands[0]))),)) == ""
    assert code_of(memory, (("load", at(memory.address(operands[0]), 0)),)) == Code.OUT_OF_BOUNDS


def test_a_guard_band_that_was_written_is_found_afterwards() -> None:
    operand = torch.zeros(10)
    memory = Memory("planted", [operand])
    memory.copy_back([operand])
    ctypes.memset(memory.address(operand) + 10 * ITEM, 1, 1)
    with pytest.raises(Violation, match="around an operand") as result:
        memory.copy_back([operand])
    assert result.value.code is Code.OUT_OF_BOUNDS


def test_what_was_written_comes_back_and_nothing_else() -> None:
    whole = torch.arange(12.0)
    operand = whole[2:9]
    memory = Memory("planted", [operand])
    ctypes.memset(memory.address(operand), 0, 3 * ITEM)
    assert torch.equal(whole, torch.arange(12.0)), "the operand itself is not touched while the launch runs"
    memory.copy_back([operand])
    assert whole.tolist() == [0, 1, 0, 0, 0, *range(5, 12)]


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_an_operand_keeps_its_alignment(offset: int) -> None:
    operand = torch.zeros(16)[offset:]
    assert Memory("planted", [operand]).address(operand) % 16 == operand.data_ptr() % 16


# --------------------------------------------------------------------------------------------------------------- races


def test_two_programs_that_write_one_element() -> None:
    memory, _, second = two()
    assert code_of(memory, (("store", at(second, 1, 2)),), (("store", at(second, 2, 3)),)) == Code.RACE


@pytest.mark.parametrize("verbs", [("load", "store"), ("store", "load")])
def test_one_program_writes_what_another_reads(verbs: tuple[str, str]) -> None:
    memory, first, _ = two()
    programs = tuple(((verb, at(first, 4)),) for verb in verbs)
    assert code_of(memory, *programs) == Code.RACE


def test_what_several_programs_read_none_may_write() -> None:
    memory, first, _ = two()
    read, write = (("load", at(first, 4)),), (("store", at(first, 4)),)
    assert code_of(memory, read, read, write) == Code.RACE


def test_programs_that_write_different_elements_and_read_the_same_are_right() -> None:
    memory, first, second = two()
    programs = [(("load", at(first, *range(10))), ("store", at(second, number))) for number in range(10)]
    assert code_of(memory, *programs) == ""


def test_a_program_may_write_what_it_has_read_itself() -> None:
    memory, first, _ = two()
    assert code_of(memory, (("load", at(first, 4)), ("store", at(first, 4)))) == ""


def test_two_lanes_of_one_store() -> None:
    memory, _, second = two()
    assert code_of(memory, (("store", at(second, 3, 5, 3)),)) == Code.RACE
    memory, _, second = two()
    assert code_of(memory, (("load", at(second, 3, 5, 3)),)) == ""


def test_a_load_after_a_store_needs_a_barrier() -> None:
    nothing = np.zeros(0, dtype=np.uint64)
    for between, code in (((), Code.RACE), ((("barrier", nothing),), "")):
        memory, _, second = two()
        assert code_of(memory, (("store", at(second, 3, 5)), *between, ("load", at(second, 5, 6)))) == code


def test_a_load_of_what_was_not_stored_needs_none() -> None:
    memory, _, second = two()
    assert code_of(memory, (("store", at(second, 3, 5)), ("load", at(second, 4, 6)))) == ""


# --------------------------------------------------------------------------------------------------------------- bytes


def test_what_several_programs_read_counts_once() -> None:
    memory, first, second = two()
    for number in range(3):
        run(memory, number, ("load", at(first, *range(10))), ("store", at(second, number)))
    assert (memory.traffic().loaded, memory.traffic().stored) == (10 * ITEM, 3 * ITEM)


def test_what_one_program_touches_again_counts_again() -> None:
    memory, first, second = two()
    whole = ("load", at(first, *range(10)))
    run(memory, 0, whole, whole, ("load", at(first, 3)), ("store", at(second, 1)), ("store", at(second, 1)))
    run(memory, 1, whole)
    assert (memory.traffic().loaded, memory.traffic().stored) == (21 * ITEM, 2 * ITEM)


def test_all_that_is_touched_is_the_sum_over_programs() -> None:
    memory, first, second = two()
    for number in range(3):
        run(memory, number, ("load", at(first, *range(10))), ("store", at(second, number)))
    assert memory.traffic().touched == 33 * ITEM


def test_a_book_adds_up_the_launches_of_a_kernel() -> None:
    book = Book()
    book.add("planted", Traffic(1, 2, 3))
    book.add("planted", Traffic(10, 20, 30))
    book.add("another", Traffic(5, 5, 5))
    assert book.launches == {"planted": 2, "another": 1}
    assert book.moved["planted"] == Traffic(11, 22, 33)
