"""Every kind of change of the process's state is seen, named and put back."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch._compile import _disable_dynamo

from opassay.oracles import process
from opassay.properties.checks.purity import check_purity

from .planted_changes import CHANGES, CHANGES_OF_PROCESSES, release
from .planted_ops import declared, sample, scaled, violation

TIERS = (process.SETTINGS, process.DEEP, process.LEFTOVERS)


@pytest.fixture(autouse=True)
def _pinned() -> Iterator[None]:
    with process.pinned():
        yield
    release()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_put_back(name: str) -> None:
    change, line = CHANGES[name]
    with process.watched(*TIERS) as after, process.watched(*TIERS) as changes:
        change()
    assert [result for result in changes if result.startswith(line)], changes
    assert after == []
    assert all(len(result) <= process.MAX_LINE for result in changes)


@pytest.mark.parametrize("name", CHANGES_OF_PROCESSES)
def test_what_is_left_is_named_once(name: str) -> None:
    leave, line = CHANGES_OF_PROCESSES[name]
    with process.watched(process.LEFTOVERS) as changes:
        leave()
    with process.watched(process.LEFTOVERS) as after:
        pass
    assert [result for result in changes if result.startswith(line)], changes
    assert after == []


@pytest.mark.parametrize("name", [*CHANGES, *CHANGES_OF_PROCESSES])
def test_pure_finds_it(name: str) -> None:
    change, line = {**CHANGES, **CHANGES_OF_PROCESSES}[name]

    def changing(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = scaled(x, w)
        change()
        return y

    result = violation(check_purity, declared(changing), sample(1))
    assert result is not None
    assert result.code.name == "MUTATED"
    assert line in result.message


def test_nothing_is_found_where_nothing_changed() -> None:
    with process.watched(*TIERS) as changes:
        torch.ones(3).sum().item()
        threading.Thread(target=int).start()  # one that ends is not left
        with open(os.devnull) as file:
            file.read()
        subprocess.run(["true"], check=True)
    assert changes == []


def test_modes_that_decide_numbers_are_put_back_before_the_call_returns_to_us() -> None:
    def changing(x: torch.Tensor) -> torch.Tensor:
        torch.set_flush_denormal(True)
        torch.set_default_dtype(torch.float64)
        raise ValueError("after the change")

    with process.watched(process.SETTINGS) as changes:
        with pytest.raises(ValueError, match="after the change"):
            process.undisturbed(changing, (torch.ones(1),))
        assert sys.float_info.min * float(np.float64(0.5)) > 0
        assert torch.get_default_dtype() is torch.float32
    assert changes[0] == "flush-to-zero: off -> on"
    assert "default dtype: torch.float32 -> torch.float64" in changes


def test_a_cell_begins_as_in_a_fresh_process_and_gives_the_user_s_state_back() -> None:
    with process.pinned():
        torch.set_default_dtype(torch.float64)
        torch.set_flush_denormal(True)
        torch.manual_seed(11), random.seed(12), np.random.seed(13)  # noqa: NPY002
        np.random.normal()  # noqa: NPY002 (leaves a second value cached)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        with process.pinned() as pin, torch.no_grad():
            assert torch.get_default_dtype() is torch.float32
            first = torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002
        assert pin.changed == ()
        assert torch.get_default_dtype() is torch.float64
        assert sys.float_info.min * float(np.float64(0.5)) == 0
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == random.getstate()
        np.testing.assert_equal(before[2], np.random.get_state())  # noqa: NPY002
        with process.pinned():
            assert first == (torch.rand(1).item(), random.random(), np.random.rand())  # noqa: NPY002


def test_what_is_told_of_one_cell_is_bounded() -> None:
    with process.pinned() as pin:
        for i in range(100):
            with process.watched(process.DEEP):
                os.environ[f"OPASSAY_PLANTED_{i}" + 9999 * "x"] = "secret"
    assert len(pin.changed) == process.MAX_LINES + 1
    assert all(len(line) <= process.MAX_LINE for line in pin.changed)
    assert not any("secret" in line for line in pin.changed)


@pytest.mark.slow
def test_a_process_that_a_sample_forked_ends_at_the_end_of_the_sample() -> None:
    code = (
        "import os\nfrom opassay.oracles import process\n"
        "with process.watched(process.SETTINGS):\n    child = os.fork()\n"
        "print('alive', flush=True)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["alive", "1"]


def test_a_change_by_torch_s_compiler_is_not_the_subject_s() -> None:
    compiled = torch.compile(lambda x, w: x * w, backend="aot_eager")
    assert violation(check_purity, declared(compiled), sample(1)) is None


def test_what_the_import_of_torch_s_compiler_wraps_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with process.watched(*TIERS) as of_compiler:
        monkeypatch.setattr(torch, "manual_seed", _disable_dynamo(torch.manual_seed))
    with process.watched(*TIERS) as of_subject:
        monkeypatch.setattr(torch, "manual_seed", functools.wraps(torch.manual_seed)(lambda seed: None))
    assert of_compiler == []
    assert of_subject == ["torch.manual_seed: replaced"]


def test_the_filter_that_an_import_of_pkg_resources_adds_is_no_change() -> None:
    category = type("PEP440Warning", (RuntimeWarning,), {"__module__": "pkg_resources"})
    with process.watched(*TIERS) as changes:
        warnings.simplefilter("ignore", category)
    assert changes == []


@pytest.mark.slow
def test_the_import_of_inductor_is_no_change() -> None:
    code = (
        "import sys, torch\nfrom opassay.oracles import process\n"
        "with process.pinned(), process.watched(process.SETTINGS, process.DEEP, process.LEFTOVERS) as seen:\n"
        "    before = 'torch._inductor.compile_fx' in sys.modules\n"
        "    import torch._inductor.compile_fx\n"
        "print(before, seen)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "[]"]
