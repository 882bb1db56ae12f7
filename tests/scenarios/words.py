"""The words in which a scenario tells what happens. Lineages get names: L3 is the first seen at step 3."""

from __future__ import annotations

from ftruntime.protocol import effects as f
from ftruntime.protocol.head import Head, Status
from ftruntime.protocol.ids import Address, Lineage
from ftruntime.protocol.plan import Catcher, Kind, Plan
from ftruntime.protocol.record import Record, Stance
from ftruntime.protocol.task import Part


class Words:
    """``names`` is the name of each committed lineage, in the order of appearance on a chain."""

    def __init__(self, ranks_per_replica: int) -> None:
        self.names: dict[Lineage, str] = {}
        self._ranks = ranks_per_replica

    def learn(self, head: Head) -> None:
        """Name what is new on the chain: L3 the first of step 3, L3b the second."""
        for commit in head.chain:
            if commit.lineage not in self.names:
                taken = sum(name.rstrip("bcdefgh") == f"L{commit.step}" for name in self.names.values())
                self.names[commit.lineage] = f"L{commit.step}" + " bcdefgh"[taken].strip()

    def plain(self, text: str) -> str:
        """``text`` with names for lineages."""
        for lineage, name in self.names.items():
            text = text.replace(lineage, name).replace(lineage[:8], name)
        return text

    def rank(self, at: Address) -> str:
        return str(at[0]) if self._ranks == 1 else f"{at[0]}/{at[1]}"

    # -- heads -----------------------------------------------------------------------------------

    def news(self, old: Head | None, new: Head) -> list[str]:
        """What became different in the register."""
        self.learn(new)
        if old is None:
            return ["head: the job is founded"]
        if new.epoch != old.epoch:
            return [f"head: rebuilt as epoch {new.epoch}, recovering in round {new.round}"]
        if new.status is Status.LOST and old.status is not Status.LOST:
            return ["head: suspended, as a member has seen a newer one"]
        if new.round > old.round:
            return [self._end(old, new), *([self.plan(new)] if new.status is Status.RUNNING else [])]
        if new.checkpoints != old.checkpoints:
            return [f"head: checkpoint {self.names[new.checkpoints[-1].lineage]} is on record"]
        goes_on = f", the job goes on to step {new.until}" if new.until != old.until else ""
        return [
            f"head: {replica}.{life[0]} is registered{goes_on}"
            for replica, (life, before) in enumerate(zip(new.incarnations, old.incarnations, strict=True))
            if life != before
        ]

    def _end(self, old: Head, new: Head) -> str:
        if old.status is Status.RECOVERING:
            back = new.rollback
            if back is None or back == old.rollback:
                return f"head: recovered by {new.by} without a rollback"
            source = self.plain(back.source)
            lost = f"rolled back from step {back.from_step} to {self.names[back.to_lineage]}"
            return f"head: {lost} ({source}) by {new.by}"
        if new.end != old.end:
            return f"head: round {old.round} committed by {new.by}: {self.names[new.end.lineage]}"
        recovering = ", recovering" if new.status is Status.RECOVERING else ""
        return f"head: round {old.round} closed by {new.by}{recovering}"

    def plan(self, head: Head) -> str:
        """The open round in one line."""
        if head.status is not Status.RUNNING:
            return f"round {head.round}: {head.status.name.lower()}"
        plan = head.plan
        doing = _list(plan.contributors) + " train" if plan.kind is Kind.TRAIN else "no training"
        text = f"round {plan.round}: {doing} on {self.names[plan.base.lineage]}"
        if head.finished:
            text += ", the job is over"
        if head.closes:
            text += f", try {head.closes + 1}"
        return "; ".join([text, *(self.catcher(plan, c) for c in plan.catchers)])

    def catcher(self, plan: Plan, c: Catcher) -> str:
        """How a catcher comes level."""
        text = f"{c.member} follows" if c.fetch is None else f"{c.member} goes on from its fetch"
        if c.fetch is not None and c.donors:
            text = f"{c.member} fetches {self.names[c.fetch.lineage]} from {_list(c.donors)}"
        elif c.fetch is not None and plan.restore:
            text = f"{c.member} restores {self.names[c.fetch.lineage]} ({self.plain(plan.restore)})"
        if c.zeros:
            return text + " and sends zeros"
        return text if c.tap is None else f"{text}, tapping {c.tap}"

    # -- records ---------------------------------------------------------------------------------

    def record(self, r: Record) -> str:
        """A record in one line."""
        text = f"{r.member} holds {self.names.get(r.held.lineage, 'an unknown state')} as of round {r.as_of}"
        text += f", {r.stance.name.lower()} in round {r.round}" + (", ready" if r.ready else "")
        if r.accuses:
            text += f", accuses {_list(r.accuses)}"
        if r.fetching:
            text += f", on its way from {self.names[r.fetching.lineage]}"
        return text + (", tells the head it has seen" if r.seen else "")

    def word(self, r: Record, head: Head | None) -> str:
        """What a record that was just written says that others act on, or ""."""
        if r.seen is not None or r.member.incarnation == 0:
            return "record: " + self.record(r)
        if head is not None and head.status is Status.RECOVERING and r.as_of == head.round:
            return f"record: {r.member} promises that it holds {self.names.get(r.held.lineage, '?')}"
        if r.stance is Stance.NO:
            accuses = f", accuses {_list(r.accuses)}" if r.accuses else ""
            return f"record: {r.member} says no to round {r.round}{accuses}"
        return ""

    # -- effects ---------------------------------------------------------------------------------

    def effect(self, at: Address, effect: f.Effect) -> str:
        """What a rank does that people want to follow, or ""."""
        text = self._of_rank(effect)
        if text:
            return f"{self.rank(at)}: {text}"
        if isinstance(effect, f.Note) and effect.what != "registered":
            round = f" round {effect.round}" if effect.round > 0 else ""
            detail = f": {self.plain(effect.detail)}" if effect.detail else ""
            return f"{at[0]}: {effect.what}{round}{detail}"
        if isinstance(effect, f.Exit):
            return f"{at[0]}: exits: {self.plain(effect.reason)}" + (
                " (start it anew)" if effect.restart else ""
            )
        if isinstance(effect, f.Finish):
            return f"{self.rank(at)}: ends well with {self.names[effect.lineage]}"
        return ""

    def _of_rank(self, effect: f.Effect) -> str:
        match effect:
            case f.Launch(plan, _, True):
                return f"takes its retained gradient for round {plan.round}"
            case f.Launch(plan, task, _):
                samples = " ".join(f"{r.stream}[{r.start}..{r.start + r.count - 1}]" for r in task.ranges)
                return f"computes round {plan.round} on {samples}"
            case f.Hold(plan, task):
                what = "sends zeros in" if task.part is Part.ZEROS else "holds"
                return f"{what} round {plan.round}"
            case f.Drop(round):
                return f"frees round {round}"
            case f.Freeze(_, lineage):
                return f"freezes {self.names[lineage]}"
            case f.Release(lineage):
                return f"releases {self.names[lineage]}"
            case f.Restore(name):
                return f"restores {self.plain(name)}"
            case f.SaveShard(_, _, lineage):
                return f"writes checkpoint {self.names[lineage]}"
            case _:
                return ""


def _list(values: tuple[object, ...]) -> str:
    return " ".join(str(value) for value in values)
