"""The chain of commits as the heads in the log make it, and the states that ever were on it."""

from __future__ import annotations

from dataclasses import dataclass

from .entries import Member

CHAIN_WINDOW = 8_192  # commits that a rollback may go back, apart from recorded checkpoints and step 0
KNOWN_WINDOW = 65_536  # lineages that are remembered as having been committed once


@dataclass(frozen=True, slots=True)
class Link:
    """One commit. ``by`` made it; ``next`` is its right neighbour in the ring, or None if unknown:
    the one member that had acknowledged every chunk of the committer when it voted (design 3.3)."""

    step: int
    lineage: str
    round: int
    t: float
    by: Member | None = None
    next: Member | None = None


class Chain:
    """The surviving line of commits, in order of steps."""

    def __init__(self, root: str) -> None:
        self.root = Link(0, root, 0, 0.0)
        self.links: list[Link] = [self.root]
        self.pinned: dict[str, Link] = {}  # recorded checkpoints
        self.known: dict[str, int] = {root: 0}  # lineage -> step, also of commits that were cut

    @property
    def end(self) -> Link:
        return self.links[-1]

    def extend(self, link: Link) -> None:
        self.links.append(link)
        self.known[link.lineage] = link.step
        if len(self.links) > 2 * CHAIN_WINDOW:
            del self.links[:CHAIN_WINDOW]
        if len(self.known) > KNOWN_WINDOW:
            del self.known[next(iter(self.known))]

    def find(self, lineage: str) -> Link | None:
        """The link of ``lineage`` if it is on the surviving chain."""
        for link in reversed(self.links):
            if link.lineage == lineage:
                return link
        if lineage == self.root.lineage:
            return self.root
        link_or_none = self.pinned.get(lineage)
        return link_or_none if link_or_none and link_or_none.step <= self.end.step else None

    def beyond(self, step: int) -> list[Link]:
        """The commits that a rollback to ``step`` gives up."""
        return [link for link in self.links if link.step > step]

    def pin(self, lineage: str) -> None:
        if (link := self.find(lineage)) is not None:
            self.pinned[lineage] = link

    def cut(self, target: Link) -> None:
        self.links = [link for link in self.links if link.step <= target.step]
        if not self.links or self.links[-1].lineage != target.lineage:
            self.links.append(target)
        self.pinned = {name: link for name, link in self.pinned.items() if link.step <= target.step}

    def was_committed(self, lineage: str) -> bool:
        """Whether ``lineage`` is, or once was, a state of this job."""
        return lineage in self.known or lineage == self.root.lineage or lineage in self.pinned
