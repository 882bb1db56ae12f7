"""Runs the data plane of a ring by hand, for the tests of devices."""

from __future__ import annotations


def run_ring(exchanges, geometry):
    """Every chunk to every member, in order; finished ones end in each member's buffer. Returns those sent,
    by (member, number)."""
    members, chunks, sent = geometry.members, {}, {}
    for number in range(geometry.total):
        place = geometry.locate(number)
        if place.step == 0:
            for index, exchange in enumerate(exchanges):
                chunks[index, number] = exchange.produce(number)
        onward = number + geometry.pieces[place.piece].per_step
        for index in range(members):
            sent[index, number] = chunks[index, number]
        for index, exchange in enumerate(exchanges):
            passed = exchange.take(number, chunks.pop(((index - 1) % members, number)))
            if place.step < geometry.steps - 1:
                chunks[index, onward] = passed
    assert not chunks
    return sent


def run_tap(exchange, held, geometry):
    """Every finished chunk of a member to a learner."""
    for index in range(geometry.finished_total):
        held.store(index, exchange.finished(index))
