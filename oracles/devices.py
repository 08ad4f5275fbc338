"""COMM: an op over several places gives there what its formula says; so does every derivative, and nothing races."""

from __future__ import annotations

from typing import Any

from .judgement import Judgement, Unsupported, Violation
from .op import Sample, flat_outputs
from .ranks import OWN, partitioned, some_words
from .transforms import engines_of
from .verdict import Code


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

            j.path(sample, word, engine, function=placed, exactly=False)
            j.call(fabric.check, what="memory of other streams")
