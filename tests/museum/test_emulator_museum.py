"""The schedules that broke the emulated stack, replayed by the commands of ``emulator/museum/README.md``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.emulate import emulate
from emulator.museum import exhibits
from faultinject import Schedule, load
from faultinject.vocabulary import ReplicaLostForEver

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "emulator/museum"
GUIDE = (FOLDER / "README.md").read_text(encoding="utf-8")
COMMANDS = {exhibit.name: list(exhibit.options) for exhibit in exhibits()}
ENTRY = re.compile(r"^## (\d{3}) .+\n\*\d{4}-\d\d-\d\d\.\* [^#]+\n\n\*Mend:\* [^#]+```$", re.MULTILINE)


def test_every_schedule_has_its_entry_and_every_entry_its_schedule():
    files = sorted(path.name for path in FOLDER.glob("*.json"))
    assert files == list(COMMANDS) and files
    assert ENTRY.findall(GUIDE) == [name[:3] for name in files]
    assert [int(name[:3]) for name in files] == list(range(1, len(files) + 1))


def can_end(schedule: Schedule) -> bool:
    """Whether enough replicas are left to train at all."""
    lost = {fault.replica for fault in schedule.faults if isinstance(fault, ReplicaLostForEver)}
    return schedule.job.replicas - len(lost) >= schedule.job.min_replicas


@pytest.mark.parametrize("name", COMMANDS)
def test_ends_well(name, tmp_path, capsys):
    """Every invariant holds, the job comes to its last step, and the faults of the schedule did happen."""
    options = [*COMMANDS[name], "--run-dir", str(tmp_path / "run"), "--quiet"]
    status = emulate.main(["--faults", str(FOLDER / name), *options], standalone_mode=False)
    said = capsys.readouterr()
    assert status == 0, said.err
    schedule: Schedule = load(FOLDER / name)
    assert ("stopped at step" in said.out + said.err) is not can_end(schedule), said.err
    happened = load(tmp_path / "run" / "schedule.json").faults
    assert {type(fault) for fault in happened} == {type(fault) for fault in schedule.faults}
