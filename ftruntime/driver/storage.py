"""Shards of checkpoints in a folder: whole or not there, and verified when they are read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from ftruntime.protocol.ids import Position

from .memory import Bytes

MAGIC = b"FTSHARD1"


class BadShard(ValueError):
    """A shard that cannot be used. The message names the file and what is wrong with it."""


def shard_path(folder: Path, name: str, position: Position) -> Path:
    return folder / name / f"rank-{position:05d}.shard"


def write_shard(folder: Path, name: str, position: Position, state: Bytes) -> None:
    """Write and return when it is durable. Raises OSError; then the shard is not there."""
    path = shard_path(folder, name, position)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(MAGIC + hashlib.blake2b(state, digest_size=16).digest())
        file.write(state)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    folder_file = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder_file)
    finally:
        os.close(folder_file)


def read_shard(folder: Path, name: str, position: Position, size: int) -> Bytes:
    """The state in a shard. Raises BadShard: not there, not whole, damaged, or of another model."""
    path = shard_path(folder, name, position)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadShard(f"{path}: {error.strerror}") from None
    state = content[len(MAGIC) + 16 :]
    if not content.startswith(MAGIC) or len(state) != size:
        raise BadShard(f"{path} has a state of {len(state)} bytes, not {size}")
    if hashlib.blake2b(state, digest_size=16).digest() != content[len(MAGIC) : len(MAGIC) + 16]:
        raise BadShard(f"{path} is damaged: its checksum does not fit")
    return np.frombuffer(state, np.uint8)
