"""Kernels to be written, as a taskset of the package `verifiers` (its API of version 0.4, `verifiers.v1`).

A taskset is found by the name of a module that exports it; yours has three lines: it imports `kernel_taskset`, calls
it, and names what it gives in `__all__`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .reward import ServedJudge, describe_causes, grade


def kernel_taskset(
    judge: ServedJudge, problems: Mapping[str, str], *, prompt: str = "{spec}",
    reward: Callable[[Mapping[str, Any]], float] = grade,
) -> Any:  # fmt: skip
    """A subclass of `verifiers.v1.Taskset`, with a task for each problem.

    Args:
        judge: of completions. problems: the texts of specs, by name. prompt: what a model is asked, around `{spec}`.
        reward: of a judgement.

    Raises:
        ModuleNotFoundError: `verifiers` is not installed; the extra of that name brings it.
    """
    import verifiers.v1 as vf

    class KernelData(vf.TaskData):  # type: ignore[misc]
        spec: str

    class KernelTask(vf.Task[KernelData]):  # type: ignore[misc]
        @vf.reward  # type: ignore[untyped-decorator]
        async def judged(self, trace: Any) -> float:
            judgement = await asyncio.to_thread(judge.judge, trace.last_reply, self.data.spec)
            trace.info["opassay"] = {"verdict": judgement["verdict"], "causes": describe_causes(judgement)}
            return reward(judgement)

    class KernelTaskset(vf.Taskset[KernelTask]):  # type: ignore[misc]
        def load(self) -> Iterator[Any]:
            for name, spec in problems.items():
                data = KernelData(name=name, spec=spec, prompt=prompt.replace("{spec}", spec))
                yield KernelTask(data, self.config.task)

    return KernelTaskset
