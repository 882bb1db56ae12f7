"""Every rule that docs/design.md marks (!) has a mutant that breaks it: of the table, or of the museum.

A rule is named by the words that stand before its mark. What has neither says why.
"""

from __future__ import annotations

import re
from pathlib import Path

from emulator.mutants.table import mutants
from faultinject.museum import files, read

ROOT = Path(__file__).resolve().parents[2]

# Words before the mark -> mutants of emulator/mutants/table.toml, or functions of tests/museum/mutants.py.
MUTANTS = {
    "Equal lineage means equal bits": ("gradients-kept-over-an-apply", "contributes-from-any-base"),
    "cursors that belong to the state": ("cursors-of-the-head", "cursor_in_the_head"),
    "does not fence itself": ("a-repeat-fences-itself",),
    'and never "refused"': ("settled_is_a_refusal",),
    "A retry keeps its round": ("retry_takes_the_new_round",),
    "never registers again": ("successor-is-not-noticed", "fenced-and-goes-on", "late-process-registers"),
    "never what it expects": ("record-before-it-is-true",),
    "Reading a head does not move it": ("promises-on-reading", "promise_on_reading"),
    "however high its step": ("rollback-to-what-was-cut", "highest-step-is-the-base", "highest_step_wins"),
    "contributes nothing and says so": ("contributes-from-any-base", "refuses-in-silence"),
    "a plan of kind *catch-up only*": ("no-catch-up-below-min", "no_catch_up_below_min_replicas"),
    'the answer is "not yet"': ("undecided-are-not-waited-for", "presumption-and-promises-gone"),
    "until a head of a higher round is read": ("promises-while-it-installs", "promise_during_install"),
    "proof that the store is older": ("words-are-not-heeded", "an-old-store-goes-on"),
    "writes nothing that follows from it": ("a-lost-head-is-not-suspended",),
    "where a word knows of one": ("founds-a-job-twice",),
    "wait to be registered rebuild the head": ("rebuilt-without-all", "rebuilt-from-any-word"),
    "finds a later life in the head exits": ("late-process-registers",),
    "has acknowledged every chunk*": ("yes-without-acknowledgement", "yes_without_acknowledgement"),
    "also after applying": ("applied-and-not-served",),
    "Only the head decides": ("timeout_decides",),
    "gives up *in two phases*": ("gives-up-without-a-seal", "gives_up_without_seal"),
    "of the round can change it": ("frozen-too-late", "copies_when_asked"),
    "all ranks of the replica have theirs": ("installed-before-staged",),
    "a gap means a newer snapshot": ("held-round-across-a-gap", "a-gap-is-overlooked"),
}

# Words before the mark -> why no mutant of the protocol breaks it.
WITHOUT = {
    "Rules marked": "says what the mark is",
    "doubled for each consecutive close": "advice: it is about progress, and a short run makes it without",
    "Presumption is per incarnation": "a member's name has its incarnation: nothing can be taken out",
    "has no part in the open round": "an operator's leave: without the rule a round fails and is tried again",
    "since others may depend on it": "an operator's leave, too",
    "granted by the receiver's `Join`": "with more credits a ring breaks its own assertions",
    "onto it and nothing is cut": "campaigns do not end jobs so; tests/protocol/test_ending_random.py does",
    "posted to it is known to be complete": "of the data plane: tests/ftar/test_faults.py takes it out",
}


def marks():
    """The words before each mark."""
    text = " ".join((ROOT / "docs/design.md").read_text(encoding="utf-8").split())
    ends = [found.start() for found in re.finditer(r"\(!\)", text)]
    return [text[max(0, end - 60) : end].strip() for end in ends]


def test_every_marked_rule_has_a_mutant_or_a_reason():
    for words in marks():
        named = [key for key in (*MUTANTS, *WITHOUT) if words.endswith(key)]
        assert len(named) == 1, f"{words!r} is named by {named}"


def test_every_name_is_of_a_rule_and_of_a_mutant():
    ends = marks()
    for key in (*MUTANTS, *WITHOUT):
        assert any(words.endswith(key) for words in ends), f"{key!r}: no rule ends so"
    known = {mutant.name for mutant in mutants()} | {read(path).mutant for path in files()}
    assert {name for names in MUTANTS.values() for name in names} <= known
