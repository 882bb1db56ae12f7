"""Compile the kernels for a GPU that need not be there, and say what they need.

python -m ftruntime.ftar.build                 for sm_90
python -m ftruntime.ftar.build --arch 100 --json
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from . import kernels
from .engine import DTYPES, TILE_BYTES
from .flags import UNIT

WARPS: Final = 16  # 512 threads, as the paper's kernel has (FACTS.md)
POINTER: Final = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16"}
WORDS: Final = ("queue", "flags", "sums")
TENSORS: Final = ("received", "sent", "own", "kept")


class Built(NamedTuple):
    """registers: of a thread. shared: bytes of a block. spilled: bytes of local memory a thread."""

    dtype: str
    arch: int
    registers: int
    shared: int
    spilled: int
    cubin_bytes: int
    ptx: str


def build(dtype: str, arch: int, blocks: int = 2, queue: int = 64) -> Built:
    """The kernel for gradients of ``dtype``, as an ``Engine`` launches it."""
    _, item, word = DTYPES[dtype]
    constants = {
        "QUEUE": queue, "BLOCKS": blocks, "TILE": TILE_BYTES // item, "UNIT": UNIT // item,
        "THREADS": 32 * WARPS, "WORD": word, "BFLOAT": dtype == "bfloat16",
    }  # fmt: skip
    signature = {name: "*i64" for name in WORDS} | {name: POINTER[dtype] for name in TENSORS}
    signature |= {name: "i64" for name in kernels.COUNTERS} | {"block0": "i32"}
    signature |= {name: "constexpr" for name in constants}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(WORDS) + len(TENSORS))}
    source = ASTSource(kernels.reduce_bucket, signature, constants, aligned)
    options = {"num_warps": WARPS, "enable_fp_fusion": False}
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    registers, spilled = resources(made.asm["cubin"])
    return Built(
        dtype, arch, registers, made.metadata.shared, spilled, len(made.asm["cubin"]), made.asm["ptx"]
    )


def resources(cubin: bytes) -> tuple[int, int]:
    """(registers, bytes of local memory) of a thread, as NVIDIA's own tool reads them."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool if tool.exists() else shutil.which("cuobjdump")), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"REG:(\d+) STACK:\d+ SHARED:\d+ LOCAL:(\d+)", said)
    assert found, f"cuobjdump says something else: {said!r}"
    return int(found[1]), int(found[2])


def main(words: list[str] | None = None) -> None:
    """The command line. Exit status 1 with one line when the kernels are interpreted."""
    parser = argparse.ArgumentParser(
        prog="python -m ftruntime.ftar.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--arch", type=int, default=90, help="compute capability, as 90 for H100 and H200")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    if kernels.INTERPRETED:
        sys.exit("ftruntime.ftar.build: TRITON_INTERPRET is set; unset it to compile")
    rows = [build(dtype, options.arch)._asdict() for dtype in DTYPES]
    if options.json:
        print(json.dumps(rows))
        return
    heads = ("dtype", "arch", "registers", "shared", "spilled", "cubin_bytes")
    print(" | ".join(heads))
    for row in rows:
        print(" | ".join(_cell(row[head]) for head in heads))


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 999 else str(value)


if __name__ == "__main__":
    main()
