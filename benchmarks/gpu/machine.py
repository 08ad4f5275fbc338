"""Facts of the machine: GPU, driver, versions; and the copy bandwidth, of which all fractions are."""

from __future__ import annotations

import importlib.util

import torch
from telling import copy_bandwidth, flushing, guarded, tell

from opassay.properties.engine.environment import environment

#: Of other people's kernels, which are timed where they are installed.
OTHERS = ("triton", "liger_kernel", "quack", "apex")
SIZES = (1 << 26, 1 << 28, 1 << 30)


def main() -> None:
    """Tells one fact a row."""
    for name, value in environment().items():
        tell(fact=name, value=value)
    for name in OTHERS:
        tell(fact=name, value="installed" if importlib.util.find_spec(name) else "not installed")
    if not torch.cuda.is_available():
        return
    with guarded("GPU"):
        properties = torch.cuda.get_device_properties(0)
        tell(fact="multiprocessors", value=str(properties.multi_processor_count))
        tell(fact="L2 cache", value=f"{properties.L2_cache_size / 2**20:.0f} MiB")
        tell(fact="MIG or shared", value=f"{torch.cuda.mem_get_info()[0] / 2**30:.1f} GiB free")
    flush = flushing()
    for size in SIZES:
        with guarded("copy bandwidth"):
            tell(**{"copy of MiB": size >> 20, "GB/s": copy_bandwidth(flush, size) / 1e9})


if __name__ == "__main__":
    main()
