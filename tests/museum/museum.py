"""How exhibits behave when their safeguards are taken out."""

from __future__ import annotations

from faultinject.museum import Player, Schedule, Violation, violations_without

from . import mutants


def replay_mutated(schedule: Schedule) -> list[Violation]:
    """Without its safeguard."""
    player = Player(schedule.config)
    with getattr(mutants, schedule.mutant)():
        return violations_without(schedule, player)


def undisturbed(schedule: Schedule) -> list[Violation]:
    """A job without any fault, and without the safeguard: that alone must do no harm."""
    player = Player(schedule.config)
    with getattr(mutants, schedule.mutant)():
        for replica in range(schedule.config.replicas):
            player.world.start(replica)
        player.finish()
    return player.watcher.found
