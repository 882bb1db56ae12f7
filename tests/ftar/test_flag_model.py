"""The flags between host and kernel, in every order: right as they are, wrong without any of their rules."""

import dataclasses

import pytest

from .flag_model import Flaws, search


def test_the_protocol_of_flags_is_right_in_every_order():
    states, wrong = search(Flaws())
    assert not wrong
    assert states > 10_000, "the search saw what there is"


@pytest.mark.parametrize("flaw", [field.name for field in dataclasses.fields(Flaws)])
def test_every_rule_is_needed(flaw):
    _, wrong = search(Flaws(**{flaw: True}))
    assert wrong
