"""The table of a hunt as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .child import Hunted
from .table import Mutant


def beside(mutant: Mutant, found: Sequence[Hunted]) -> str:
    """Which mutant without any of the rule's guards was caught; "" if none was."""
    caught = {hunted.name for hunted in found if hunted.labels}
    return f"guarded twice: caught as {mutant.together}" if mutant.together in caught else ""


def survivors(table: Sequence[Mutant], found: Sequence[Hunted]) -> list[str]:
    """Names of those that nothing caught, neither alone nor with the other guards of their rule."""
    by_name = {mutant.name: mutant for mutant in table}
    return [h.name for h in found if not h.labels and not beside(by_name[h.name], found)]


def page(table: Mapping[str, Mutant], found: Sequence[Hunted]) -> str:
    """Markdown: what caught each mutant, after how much, and how many of the counted schedules."""
    lines = [
        "| mutant | rule (design) | caught by | after | of drawn schedules |",
        "|---|---|---|---|---|",
    ]
    for hunted in found:
        mutant = table[hunted.name]
        cells = (
            f"`{hunted.name}`",
            f"{mutant.rule} ({mutant.section})",
            ", ".join(hunted.labels) or beside(mutant, found) or "**survived**",
            _after(hunted),
            f"{hunted.failed:,} of {hunted.counted:,}" if hunted.counted else "not counted",
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    caught = sum(bool(hunted.labels) for hunted in found)
    left = len(survivors(list(table.values()), found))
    guarded = len(found) - caught - left
    said = f"{caught} of {len(found)} are caught; {guarded} are guarded twice; {left} survive."
    return "\n".join([said, "", *lines]) + "\n"


def _after(hunted: Hunted) -> str:
    if hunted.exhibits:
        return f"{hunted.exhibits} exhibits"
    return f"{hunted.states:,} states" if hunted.states else f"{hunted.schedules:,} schedules"
