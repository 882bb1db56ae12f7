"""All kinds of faults, by name."""

from __future__ import annotations

from typing import TypeAlias, get_args

from . import devices as d
from . import network as n
from . import operation as o
from . import processes as p
from . import store as s
from . import transfer as t
from .base import Fault

AnyFault: TypeAlias = (
    p.Crash
    | p.Hang
    | p.HangAtStart
    | p.Pause
    | p.Zombie
    | p.ReplicaLostForEver
    | p.ClockSkew
    | p.ClockJump
    | d.UncorrectableEcc
    | d.GpuLost
    | d.OutOfMemory
    | d.Slow
    | d.CorruptGradient
    | d.NanGradient
    | d.InfGradient
    | d.CorruptParameter
    | d.CorruptOptimizer
    | n.Partition
    | n.LinkFlap
    | n.MessageLoss
    | n.MessageDelay
    | n.MessageReorder
    | n.MessageDuplicate
    | n.BandwidthLoss
    | s.StoreSlow
    | s.StoreAway
    | s.StoreRestart
    | s.StoreLostAnswer
    | s.StoreLeaderChange
    | s.StoreEmpty
    | s.StoreRestoredOld
    | t.CorruptChunk
    | t.CorruptRange
    | t.DonorLost
    | t.DonorSlow
    | t.CheckpointDamaged
    | t.DiskFull
    | t.LoaderStuck
    | t.LoaderSlow
    | t.LoaderKilled
    | o.LauncherDelay
    | o.LauncherEarly
    | o.LauncherTwice
    | o.LauncherDown
    | o.Drain
    | o.ScaleDown
    | o.ScaleUp
    | o.ConfigChanged
)


def kind_of(fault: Fault) -> str:
    """The name of a fault's kind, as JSON has it."""
    return str(fault.__struct_config__.tag)


KINDS: dict[str, type[AnyFault]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(AnyFault)
}  # in the order above
