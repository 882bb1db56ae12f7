"""A model of what host and kernel tell each other (ftruntime/ftar/flags.py), and a search of all it can do.

Memory is weak: a store waits in its writer's buffer and may overtake other stores, but a store with *release*
comes after all that were before it. A load may have been made earlier than it stands, unless an *acquire* is
between. The host publishes operations in a queue of ``PLACES``, transfers what they made, may abort the first
launch at any time, and then launches once more. Two thread blocks carry out the operations, each its half.

Each flaw in ``Flaws`` is a rule left out.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

PLACES, BLOCKS, OPERATIONS = 2, 2, 3
TAIL, ABORT = "tail", "abort"


@dataclass(frozen=True)
class Flaws:
    """unordered: TAIL may overtake its operation. unfenced: the operation may be read before TAIL.
    hasty: a HEAD may overtake the data. first_head: one block's HEAD is taken for both's.
    impatient: launched again before kernels have ended. ageless: an abort ends later launches too."""

    unordered: bool = False
    unfenced: bool = False
    hasty: bool = False
    first_head: bool = False
    impatient: bool = False
    ageless: bool = False


class Block(NamedTuple):
    epoch: int
    op: int
    end: int
    phase: str  # look, read, write, signal, ended
    early: int  # an operation that was loaded too soon; -1: none


class Host(NamedTuple):
    epoch: int
    first: int
    published: int
    transferred: int
    aborted: bool
    over: int


class State(NamedTuple):
    memory: tuple  # of (name, value), sorted
    buffers: tuple  # of the host and each block: (name, value, release) in order
    host: Host
    blocks: tuple
    wrong: str = ""


def initial():
    names = [TAIL, ABORT, *[("queue", i) for i in range(PLACES)]]
    names += [("head", b) for b in range(BLOCKS)] + [
        ("data", b, i) for b in range(BLOCKS) for i in range(PLACES)
    ]
    memory = {name: -1 if name[0] in ("queue", "data") else 0 for name in names}
    blocks = tuple(Block(1, 0, OPERATIONS, "look", -1) for _ in range(BLOCKS))
    return State(_frozen(memory), ((),) * (1 + BLOCKS), Host(1, 0, 0, 0, False, 0), blocks)


def _frozen(memory):
    return tuple(sorted(memory.items(), key=repr))


def successors(state, flaws):
    """Every state that one step of anybody leads to."""
    memory = dict(state.memory)
    yield from _flushes(state, memory)
    yield from _host(state, memory, flaws)
    for index in range(len(state.blocks)):
        yield from _block(state, memory, index, flaws)


def _flushes(state, memory):
    for who, buffer in enumerate(state.buffers):
        for at, (name, value, release) in enumerate(buffer):
            if any(earlier[0] == name or release for earlier in buffer[:at]):
                continue
            buffers = _replaced(state.buffers, who, buffer[:at] + buffer[at + 1 :])
            yield state._replace(memory=_frozen({**memory, name: value}), buffers=buffers)


def _replaced(items, at, item):
    return (*items[:at], item, *items[at + 1 :])


def _stored(state, who, *stores):
    return _replaced(state.buffers, who, state.buffers[who] + stores)


def _host(state, memory, flaws):
    host = state.host
    heads = [memory["head", b] for b in range(BLOCKS)]
    done = max(host.over, heads[0] if flaws.first_head else min(heads))
    end = host.first + OPERATIONS
    if host.published < end and host.published - done < PLACES and host.published - host.transferred < PLACES:
        number = host.published
        stores = (("queue", number % PLACES), number, False), (TAIL, number + 1, not flaws.unordered)
        yield state._replace(buffers=_stored(state, 0, *stores), host=host._replace(published=number + 1))
    if host.transferred < min(done, host.published):
        number = host.transferred
        found = [memory["data", b, number % PLACES] for b in range(BLOCKS)]
        wrong = "" if found == [number] * BLOCKS else f"transferred {found} for operation {number}"
        yield state._replace(host=host._replace(transferred=number + 1), wrong=wrong)
    if host.epoch == 1 and not host.aborted:
        yield state._replace(buffers=_stored(state, 0, (ABORT, 1, False)), host=host._replace(aborted=True))
    ended = all(block.phase == "ended" for block in state.blocks) and not any(state.buffers[1:])
    if host.aborted and host.epoch == 1 and (ended or flaws.impatient):
        first = host.published
        fresh = tuple(Block(2, first, first + OPERATIONS, "look", -1) for _ in range(BLOCKS))
        # Those that have not ended go on beside the new ones, as the same halves.
        blocks = fresh if ended else (*state.blocks, *fresh)
        yield state._replace(host=Host(2, first, first, first, True, first), blocks=blocks)


def _block(state, memory, index, flaws):
    block, half = state.blocks[index], index % BLOCKS

    def become(changed, buffers=state.buffers, wrong=""):
        return state._replace(blocks=_replaced(state.blocks, index, changed), buffers=buffers, wrong=wrong)

    place = block.op % PLACES
    if block.phase == "look":
        if flaws.unfenced and block.early < 0 and memory["queue", place] >= 0:
            yield become(block._replace(early=memory["queue", place]))
        if memory[ABORT] >= (1 if flaws.ageless else block.epoch):
            yield become(block._replace(phase="ended"))
        elif memory[TAIL] > block.op:
            yield become(block._replace(phase="read"))
    elif block.phase == "read":
        found = block.early if block.early >= 0 else memory["queue", place]
        wrong = "" if found == block.op else f"block {index} took {found} for operation {block.op}"
        yield become(block._replace(phase="write", early=-1), wrong=wrong)
    elif block.phase == "write":
        stores = _stored(state, 1 + half, (("data", half, place), block.op, False))
        yield become(block._replace(phase="signal"), stores)
    elif block.phase == "signal":
        stores = _stored(state, 1 + half, (("head", half), block.op + 1, not flaws.hasty))
        after = block.op + 1
        yield become(block._replace(op=after, phase="ended" if after == block.end else "look"), stores)


def is_over(state):
    """All that was to be done is done: the launch that nobody aborted is complete, and transferred."""
    host = state.host
    complete = host.transferred == host.first + OPERATIONS
    return complete and all(block.phase == "ended" for block in state.blocks) and not any(state.buffers)


def search(flaws):
    """(states, what is wrong). Wrong is also a state from which no end can be reached."""
    start = initial()
    seen, found, back = {start}, deque([start]), {}
    ends = []
    while found:
        state = found.popleft()
        following = list(successors(state, flaws))
        if is_over(state):
            ends.append(state)
        elif not following:
            return len(seen), "stuck"
        for after in following:
            if after.wrong:
                return len(seen), after.wrong
            back.setdefault(after, []).append(state)
            if after not in seen:
                seen.add(after)
                found.append(after)
    return len(seen), "" if _reached(ends, back) == seen else "no end can be reached"


def _reached(ends, back):
    """Every state from which one of ``ends`` can be reached."""
    good, todo = set(ends), list(ends)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in good:
                good.add(before)
                todo.append(before)
    return good
