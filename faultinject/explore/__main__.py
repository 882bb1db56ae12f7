"""``python -m faultinject.explore``: explore a small job from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from .bounds import Bounds
from .search import explore

CHOICES = {"start": ("training", "returning"), "mode": ("tap", "zeros")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore; 0: no violation, 1: one was found, 2: given up before the end."""
    options = vars(_parser().parse_args(arguments))
    as_json, quiet = options.pop("json"), options.pop("quiet")
    report = explore(Bounds(**options), None if quiet else _progress)
    print(msgspec.json.encode(report).decode() if as_json else report.text())
    return 1 if report.violation is not None else 0 if report.complete else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m faultinject.explore", description=Bounds.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    standard = Bounds()
    for name in Bounds.__struct_fields__:
        value = getattr(standard, name)
        flag = "--" + name.replace("_", "-")
        parser.add_argument(
            flag, type=type(value), default=value, choices=CHOICES.get(name), help=f"default {value}"
        )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="say nothing on the way")
    return parser


def _progress(depth: int, states: int, layer: int) -> None:
    print(f"\rdepth {depth}: {states} states, {layer} in this layer", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
