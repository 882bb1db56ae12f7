"""The table of a hunt as a page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .child import Hunted
from .table import Mutant


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
            ", ".join(hunted.labels) or "**survived**",
            _after(hunted),
            f"{hunted.failed:,} of {hunted.counted:,}" if hunted.counted else "not counted",
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    caught = sum(bool(hunted.labels) for hunted in found)
    return "\n".join([f"{caught} of {len(found)} are caught.", "", *lines]) + "\n"


def _after(hunted: Hunted) -> str:
    if hunted.exhibits:
        return f"{hunted.exhibits} exhibits"
    return f"{hunted.states:,} states" if hunted.states else f"{hunted.schedules:,} schedules"
