"""COMM: an op over several places gives there what its formula says; so does every derivative, and nothing races."""

from __future__ import annotations

from typing import Any

from .judgement import Judgement, Unsupported, Violation
from .op import Sample, flat_outputs
from .ranks import partitioned, some_words
from .transforms import engines_of
from .verdict import Code


def communicated(j: Judgement, sample: Sample) -> None:
    """COMM: over the ranks that the op runs on, and over the devices."""
    if j.op.ranks is None and j.op.devices is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} runs in one place")
    if j.op.ranks is not None:
        partitioned(j, sample)
    if j.op.devices is not None:
        _on_devices(j, sample)


def _on_devices(j: Judgement, sample: Sample) -> None:
    """Words of transforms of the op on the devices of a fabric, from arguments on the host to outputs on the host."""
    devices = j.op.devices
    assert devices is not None
    for word in some_words(sample.generator(9)):
        for engine in engines_of(word):
            fabric = devices.fabric(devices.size(sample.args))
            homes = devices.homes(sample.args)

            def placed(*args: Any, fabric: Any = fabric, homes: Any = homes) -> Any:
                assert devices is not None
                outputs, found = devices.call(fabric, homes, *args)
                need = [fabric.device(place) for place in homes.outputs]
                if found != need:
                    lines = [f"got {found}, need {need}"]
                    raise Violation(Code.ATTRIBUTE, f"{j.op.name}: devices of the outputs", lines)
                return flat_outputs(outputs)

            j.path(sample, word, engine, function=placed, exactly=False)
            j.call(fabric.check, what="memory of other streams")
