"""COMM: an op over several places has the values and derivatives of its formula, and no copy is used too early.

What this is for: this module has the check of the property. It judges the op over ranks (`ranks`), over devices, or
both, as the op declares. Over devices the whole path runs from arguments on the host to outputs on the host.

What is hard here: right values do not prove that an op is right. An output may be right and lie on a wrong device, a
copy may be used before it has arrived, and an op may send every tensor to every device. So the places of the outputs,
the waits (`fabric.check`) and the bytes that were sent between devices are judged, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....oracles.judge.holding import of_dtypes
from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Stream, Tensor, flat_outputs
from ....oracles.op.placement import Homes, Promise
from ....oracles.op.transforms import Word, engines_of
from ....oracles.verdicts.violation import Code, Unsupported
from .ranks import check_partition, some_words

HOST = -1  # the number of the host among places


def check_places(judge: Judge, sample: Sample) -> None:
    """COMM: over the ranks that the op runs on, and over the devices."""
    ranks, devices = judge.op.production.ranks, judge.op.production.devices
    if ranks is None and devices is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} runs in one place")
    # The promises of the places do not depend on the sample, so they are judged once in a cell.
    if judge.subject_name == OWN and sample.turn == 0:
        for places in (ranks, devices):
            for promise in places.promises() if places is not None else ():
                _require_promise(judge, promise)
    if ranks is not None and (judge.subject_name == OWN or judge.subject_name in ranks.peers):
        check_partition(judge, sample)
    if devices is not None and (judge.subject_name == OWN or judge.subject_name in devices.peers):
        # What happens between the host and the devices is the same question on whatever device the cell is.
        _judge_on_devices(judge.on("cpu"), sample.on("cpu"))


def _judge_on_devices(judge: Judge, sample: Sample) -> None:
    """Words of transforms of the op on the devices of a fabric, from arguments on the host to outputs on the host."""
    devices = judge.op.production.devices
    assert devices is not None
    own = judge.subject_name == OWN
    call = devices.call if own else devices.peers[judge.subject_name]
    for word in some_words(sample.generator(Stream.DEVICES), judge.subject_name):
        for engine in engines_of(word) if own else ("eager",):
            # A fabric counts bytes and waits from its start on, so each path gets a new one. The function below binds
            # the fabric as a default, because the loop assigns another one to the name later.
            fabric = devices.fabric(devices.size(sample.args))
            if engine == "func" and not torch_nests(word, fabric.devices):
                continue
            homes = devices.homes(sample.args)

            def placed(*args: Any, fabric: Any = fabric, homes: Any = homes) -> Any:
                outputs, got = call(fabric, homes, *args)
                need = [fabric.device(place) for place in homes.outputs]
                if got != need:
                    lines = [f"got {got}, need {need}"]
                    raise judge.violation(Code.ATTRIBUTE, "devices of the outputs", lines)
                return flat_outputs(outputs)

            outputs = judge.hold(sample, word, engine, function=placed, exactly=False)
            judge.call(fabric.check, what="memory of other streams")
            if not word:
                promised = of_dtypes(judge.op.promises.dtypes(sample.args))
                judge.require_alike(outputs, promised, "dtype", where="on devices")
                _require_traffic(judge, sample, homes, outputs, fabric.count_sent_bytes())


def torch_nests(word: Word, devices: Sequence[torch.device]) -> bool:
    """Whether torch.func can nest the transforms of a word over these devices.

    When a gradient goes from one accelerator to another, autograd reports its storage to the allocator. The tensors of
    a vjp that torch.func differentiates once more have no storage: "Cannot access storage of TensorWrapper" (torch
    2.13, record_stream_any_impl in torch/csrc/autograd/input_buffer.cpp). Such words are judged with autograd's own
    nesting alone.
    """
    accelerators = {device for device in devices if device.type not in ("cpu", "meta")}
    return len(accelerators) < 2 or "vjp" not in word[:-1]


def _require_promise(judge: Judge, promise: Promise) -> None:
    for wrong in judge.call(lambda: list(promise.find_faults()), what=promise.name):
        if wrong:
            raise judge.violation(Code.ATTRIBUTE, wrong, where=promise.name)
        judge.tally.count(1)


def _require_traffic(judge: Judge, sample: Sample, homes: Homes, outputs: Sequence[Tensor], sent: int | None) -> None:
    """Violation unless one call sent every tensor once, and no more; `sent` is None where the fabric counts no bytes.

    The arguments are sent from the host to their homes, and the outputs from their homes to the host. In between, the
    whole tensor is on one device, and each part, copy or term on another device is sent between the two.
    """
    sizes = [a.nbytes for a in sample.args if isinstance(a, Tensor)], [y.nbytes for y in outputs]
    sides = list(zip((homes.arguments, homes.outputs), sizes, strict=True))
    # One of the two sides, the arguments or the outputs, is the whole: it is at one place, or in fewer tensors than the
    # other side, which has the parts, the copies or the terms.
    ((whole, *_), _), (parts, parted) = sorted(sides, key=lambda side: (len(set(side[0])), len(side[0])))
    need = sum(size for place, size in zip(parts, parted, strict=True) if place != whole)
    need += sum(size for places, own in sides for place, size in zip(places, own, strict=True) if place != HOST)
    if sent is not None and sent != need:
        raise judge.violation(Code.MEMORY, f"sent {sent} bytes between devices, need {need}", where="forward")
