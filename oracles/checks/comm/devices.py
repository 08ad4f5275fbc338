"""COMM: an op over several places gives there what its formula says; so does every derivative, and nothing races."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...judgement import Judgement, Unsupported, Violation
from ...op import OWN, Homes, Sample, Tensor, flat_outputs
from ...transforms import engines_of
from ...verdict import Code
from .ranks import partitioned, some_words

HOST = -1  # as a place


def communicated(j: Judgement, sample: Sample) -> None:
    """COMM: over the ranks that the op runs on, and over the devices."""
    ranks, devices = j.op.ranks, j.op.devices
    if ranks is None and devices is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} runs in one place")
    if ranks is not None and (j.subject_name == OWN or j.subject_name in ranks.peers):
        partitioned(j, sample)
    if devices is not None and (j.subject_name == OWN or j.subject_name in devices.peers):
        _on_devices(j, sample)


def _on_devices(j: Judgement, sample: Sample) -> None:
    """Words of transforms of the op on the devices of a fabric, from arguments on the host to outputs on the host."""
    devices = j.op.devices
    assert devices is not None
    own = j.subject_name == OWN
    call = devices.call if own else devices.peers[j.subject_name]
    for word in some_words(sample.generator(9), j.subject_name):
        for engine in engines_of(word) if own else ("eager",):
            fabric = devices.fabric(devices.size(sample.args))
            homes = devices.homes(sample.args)

            def placed(*args: Any, fabric: Any = fabric, homes: Any = homes) -> Any:
                outputs, found = call(fabric, homes, *args)
                need = [fabric.device(place) for place in homes.outputs]
                if found != need:
                    lines = [f"got {found}, need {need}"]
                    raise Violation(Code.ATTRIBUTE, f"{j.op.name}: devices of the outputs", lines)
                return flat_outputs(outputs)

            outputs = j.path(sample, word, engine, function=placed, exactly=False)
            j.call(fabric.check, what="memory of other streams")
            if not word:
                _require_traffic(j, sample, homes, outputs, fabric.sent())


def _require_traffic(j: Judgement, sample: Sample, homes: Homes, outputs: Sequence[Tensor], sent: int | None) -> None:
    """One call sends every tensor once: from the host to its home, between what is whole and its parts, and back."""
    sizes = [_bytes(a) for a in sample.args if isinstance(a, Tensor)], [_bytes(y) for y in outputs]
    sides = list(zip((homes.arguments, homes.outputs), sizes, strict=True))
    # The whole is at one place; the other side has the parts, or as many tensors as there are copies or terms.
    ((whole, *_), _), (parts, parted) = sorted(sides, key=lambda side: (len(set(side[0])), len(side[0])))
    need = sum(size for place, size in zip(parts, parted, strict=True) if place != whole)
    need += sum(size for places, own in sides for place, size in zip(places, own, strict=True) if place != HOST)
    if sent is not None and sent != need:
        title = f"{j.op.name} forward: sent {sent} bytes between devices, need {need}"
        raise Violation(Code.MEMORY, title, path="forward")


def _bytes(t: Tensor) -> int:
    return t.numel() * t.element_size()
