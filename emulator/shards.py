"""A rank's shard, and where it comes from and goes to: storage, and what is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftruntime.protocol import effects as f
from ftruntime.protocol import events as e

from .odd import save_fails

if TYPE_CHECKING:
    from .process import Process


def restore(process: Process, effect: f.Restore, now: float) -> None:
    """Stage a shard from storage; one that storage does not have fails at once."""
    state, wrong = process.job.stored_state(effect.name, process.address[1], process.device)
    if wrong:
        failed = e.Restored(effect.lineage, False, f"checkpoint {effect.name} {wrong}")
        process.job.kernel.at(now, process.handler, failed)
        return
    process.source = "initial" if effect.name == "initial" else "checkpoint"
    done = process.device.restore(effect.lineage, state, now) + process.job.storage_s
    process.job.kernel.at(done, process.handler, e.Restored(effect.lineage, True))


def install(process: Process, effect: f.InstallStaged, now: float) -> None:
    """What is staged becomes the state; logged when the device has it."""
    done = process.device.install(effect.step, effect.lineage, now)
    member, digest = process.member, process.device.digest()
    who = [member.replica, member.incarnation, process.address[1]]
    process.pending = ["installed", now, *who, effect.step, effect.lineage, digest, process.source]
    process.job.kernel.at(done, process.on_changed, e.Applied(-1))


def save_shard(process: Process, effect: f.SaveShard, now: float) -> None:
    """Write the shard that the device holds; it is durable after a while."""
    if save_fails(process, effect, now):
        return
    device, member = process.device, process.member
    process.job.storage.save(effect.name, process.address[1], device)
    shard = [effect.name, device.step, device.lineage, device.digest()]
    process.job.log(["shard", now, member.replica, member.incarnation, process.address[1], *shard])
    process.job.kernel.at(now + process.job.storage_s, process.handler, e.Saved(effect.name, True))
