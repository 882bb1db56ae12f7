"""FTAR's data plane on a GPU: a kernel that carries out the operations of a bucket (docs/ftar.md).

Each thread block does its own tiles of every operation, and tells the host how far it is, so blocks never
wait for one another. An operation reads what was received, adds the own share, and stores the result in a
send slot, among the sums, or both: the fused forward step of the paper (FACTS.md, "FTAR"). Sums are made in
float32 and rounded once to the type of the gradients, as the reference (``ftruntime/driver/ring_bytes.py``)
does.

With TRITON_INTERPRET=1 the same kernel runs on CPU tensors (``interpreted.py``).
"""

from __future__ import annotations

import time

import triton
import triton.language as tl
from triton import knobs

from . import checksum
from . import flags as f

LINE = tl.constexpr(f.LINE)
HEADS = tl.constexpr(f.HEADS)
TAIL = tl.constexpr(f.TAIL)
ABORT = tl.constexpr(f.ABORT)
FIELDS = tl.constexpr(f.FIELDS)
RECEIVED, OWN, SENT = tl.constexpr(f.RECEIVED), tl.constexpr(f.OWN), tl.constexpr(f.SENT)
KEPT, ELEMENTS, CHECK = tl.constexpr(f.KEPT), tl.constexpr(f.ELEMENTS), tl.constexpr(f.CHECK)
MIX_INDEX, MIX_WORD = tl.constexpr(checksum.MIX_INDEX), tl.constexpr(checksum.MIX_WORD)
NAN = tl.constexpr(0x7FC00000)

INTERPRETED: bool = knobs.runtime.interpret
REST_S = 0.0001

# What kernels call: compiled into them; or plain Python, since the interpreter is not made for threads.
device = (lambda function: function) if INTERPRETED else triton.jit

if INTERPRETED:

    def rest() -> None:
        """Let other threads of this interpreter run."""
        time.sleep(REST_S)

    def acquire() -> None:
        """Python's memory is in order."""

else:

    @triton.jit
    def rest():
        """Do not fill the bus with reads of a word that has not changed."""
        tl.inline_asm_elementwise(
            "nanosleep.u32 100; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )

    @triton.jit
    def acquire():
        """What was written before the flag that was just read is visible to this thread."""
        tl.inline_asm_elementwise(
            "fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@device
def look(flags, lane):
    """(TAIL, ABORT). One thread reads a word, and a reduction gives every thread the same answer: if each
    warp read for itself, one might see an abort that another did not."""
    line = tl.load(flags + lane, mask=lane < 2, other=0, volatile=True)
    return tl.sum(tl.where(lane == TAIL, line, 0), axis=0), tl.sum(tl.where(lane == ABORT, line, 0), axis=0)


@device
def added(one, other, BFLOAT: tl.constexpr):
    """The sum in float32, rounded once: to the nearest, ties to even."""
    if BFLOAT:
        # By hand, since what rounds in hardware, in the interpreter and in torch is to be the same bits.
        left = one.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        right = other.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        total = left.to(tl.float32, bitcast=True) + right.to(tl.float32, bitcast=True)
        bits = total.to(tl.uint32, bitcast=True)
        bits = tl.where(total == total, bits + 0x7FFF + ((bits >> 16) & 1), NAN)
        result = (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = (one.to(tl.float32) + other.to(tl.float32)).to(one.dtype)
    return result


@device
def mixed(result, at, WORD: tl.constexpr):
    """Each element with its place, as in ``checksum.py``."""
    word = result.to(WORD, bitcast=True).to(tl.uint32)
    word = (word ^ (at.to(tl.uint32) * MIX_INDEX)) * MIX_WORD
    return word ^ (word >> 15)


@device
def carry_out(
    place, received, sent, own, kept, block,
    BLOCKS: tl.constexpr, TILE: tl.constexpr, UNIT: tl.constexpr, WORD: tl.constexpr, BFLOAT: tl.constexpr,
):  # fmt: skip
    """The block's tiles of the operation at ``place``; returns its part of the checksum (0: none wanted)."""
    source = tl.load(place + RECEIVED, volatile=True)
    share = tl.load(place + OWN, volatile=True)
    slot = tl.load(place + SENT, volatile=True)
    keep = tl.load(place + KEPT, volatile=True)
    count = tl.load(place + ELEMENTS, volatile=True)
    check = tl.load(place + CHECK, volatile=True)
    digest = tl.zeros([TILE], tl.uint32)
    # Whole units are moved, since buffers are padded to them: so masks never split a vector.
    padded = tl.cdiv(count, UNIT) * UNIT
    start = block.to(tl.int64) * TILE
    while start < padded:
        at = start + tl.arange(0, TILE)
        inside = at < padded
        result = tl.zeros([TILE], sent.dtype.element_ty)
        if source >= 0:
            result = tl.load(received + source * UNIT + at, mask=inside, other=0.0)
        if share >= 0:
            mine = tl.load(own + share * UNIT + at, mask=inside, other=0.0)
            if source >= 0:
                result = added(result, mine, BFLOAT)
            else:
                result = mine
        if slot >= 0:
            tl.store(sent + slot * UNIT + at, result, mask=inside)
        if keep >= 0:
            tl.store(kept + keep * UNIT + at, result, mask=inside)
        if check != 0:
            digest += tl.where(at < count, mixed(result, at, WORD), 0)
        start += BLOCKS * TILE
    return tl.sum(digest, axis=0).to(tl.int64)


COUNTERS = ["first", "end", "epoch"]  # grow for ever: no value of theirs may mean another compilation


@triton.jit(do_not_specialize=COUNTERS, do_not_specialize_on_alignment=COUNTERS)
def reduce_bucket(
    queue,  # int64[QUEUE, FIELDS], pinned
    flags,  # int64, pinned
    sums,  # int64[QUEUE, BLOCKS], pinned
    received,  # receive slots
    sent,  # send slots
    own,  # the bucket's gradient
    kept,  # the bucket's sums
    first: tl.int64,  # number of the bucket's first operation
    end: tl.int64,  # number after its last one
    epoch: tl.int64,  # of this launch
    block0: tl.int32,  # of the first block of this launch
    QUEUE: tl.constexpr,
    BLOCKS: tl.constexpr,
    TILE: tl.constexpr,  # elements that a block takes at a time
    UNIT: tl.constexpr,  # elements of a unit of offsets
    THREADS: tl.constexpr,  # of a block
    WORD: tl.constexpr,  # the unsigned type as wide as an element
    BFLOAT: tl.constexpr,  # elements are bfloat16
):
    """Operations ``first`` to ``end`` - 1, each when it is published; ends early if ``epoch`` is aborted."""
    block = tl.program_id(0) + block0
    lane = tl.arange(0, THREADS)
    op = first
    going = 1
    while (op < end) & (going == 1):
        tail, aborted = look(flags, lane)
        while (tail <= op) & (aborted < epoch):
            rest()
            tail, aborted = look(flags, lane)
        acquire()
        tl.debug_barrier()
        if aborted >= epoch:
            going = 0
        else:
            total = carry_out(
                queue + (op % QUEUE) * FIELDS,
                received,
                sent,
                own,
                kept,
                block,
                BLOCKS,
                TILE,
                UNIT,
                WORD,
                BFLOAT,
            )
            tl.store(sums + (op % QUEUE) * BLOCKS + block, total)
            # Every thread's stores come before the flag: the barrier orders them before this thread, and the
            # release orders them for the whole system, the network card included.
            tl.debug_barrier()
            op += 1
            tl.atomic_xchg(flags + HEADS + block * LINE, op, sem="release", scope="sys")
