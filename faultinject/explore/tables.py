"""Numbers for things: equal things get equal numbers, so the state of a job is a row of small integers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from .keys import key

T = TypeVar("T")


class Table(Generic[T]):
    """Numbers from 1 for things that are never modified; 0 stands for "none"."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.things: list[T | None] = [None]

    def number(self, thing: T, name: bytes | None = None) -> int:
        """The number of ``thing``, or of the first one with the same key."""
        name = key(thing) if name is None else name
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.things)
            self.things.append(thing)
        return found

    def __getitem__(self, number: int) -> T:
        thing = self.things[number]
        assert thing is not None, "nothing has number 0"
        return thing

    def __len__(self) -> int:
        return len(self.things) - 1


class Queues:
    """Numbers for tuples of hashable items, 0 being the empty one; push and pop are looked up."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {(): 0}
        self.items: list[tuple[Any, ...]] = [()]
        self._pushed: dict[tuple[int, object], int] = {}
        self._rest: dict[int, int] = {}

    def number(self, items: tuple[Any, ...]) -> int:
        found = self._numbers.get(items)
        if found is None:
            found = self._numbers[items] = len(self.items)
            self.items.append(items)
        return found

    def push(self, queue: int, item: object) -> int:
        found = self._pushed.get((queue, item))
        if found is None:
            found = self._pushed[queue, item] = self.number((*self.items[queue], item))
        return found

    def rest(self, queue: int) -> int:
        """The queue without its first item."""
        found = self._rest.get(queue)
        if found is None:
            found = self._rest[queue] = self.number(self.items[queue][1:])
        return found
