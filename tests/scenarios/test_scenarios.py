"""Each scenario file shows exactly what it says. ``--rewrite`` (with this folder named) writes it anew."""

from __future__ import annotations

import pytest

from . import script
from .harness import Harness


@pytest.mark.parametrize("path", script.files(), ids=lambda path: path.stem)
def test_scenario(path, request):
    expected = path.read_text(encoding="utf-8")
    shown = script.play(expected, Harness().run)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(shown, encoding="utf-8")
    else:
        assert shown.splitlines() == expected.splitlines()


@pytest.mark.parametrize("path", script.files(), ids=lambda path: path.stem)
def test_scenario_begins_with_words(path):
    first = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    assert len(first) > 2 and all(line.startswith("#") for line in first)


@pytest.mark.parametrize(
    "text, line",
    [("start 0\n", 1), ("# words\n\njob replicas=2\n\n----\n", 4)],
)
def test_a_block_without_a_rule_is_refused(text, line):
    with pytest.raises(ValueError, match=f"line {line}: a block of commands ends with ----"):
        script.parse(text)


@pytest.mark.parametrize(
    "command, words",
    [
        ("jump 3", "no such command: jump"),
        ("until the end", "no such condition: the end"),
        ("show me", "nothing to show of: me"),
        ("fire close 0 7", "no timer close with tag 7 at 0/0"),
        ("lose request 7", "replica 7 has no request under way"),
        ("job replicas=3", "the job has begun"),
    ],
)
def test_a_command_that_cannot_work_names_the_line(command, words):
    harness = Harness()
    harness.run(script.Block(1, ["job replicas=2", "log none", "start 0 1", "until step 1"]))
    with pytest.raises(ValueError, match="line 9: .*" + words):
        harness.run(script.Block(9, [command]))


def test_words_and_blocks_survive_a_rewrite():
    text = "# words\n\njob replicas=2\n----\n\n# more\nstart 0 1\nsettle\n----\nout\n\n"
    assert script.play(text, lambda block: block.expected) == text
