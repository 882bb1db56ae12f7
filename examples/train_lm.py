"""Train a small Llama-style model on documents that faker makes, and survive whatever dies meanwhile.

All replicas on one machine:

    python -m ftruntime.launch --replicas 3 --ranks 2 -- examples/train_lm.py --steps 200

Kill any of its processes with ``kill -9``: the others train on, and the replica comes back. With torchrun,
one for each replica, see docs/driver.md. The lines that make it fault tolerant are marked with (ft).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import zlib

import torch
import torch.nn.functional as F
from faker import Faker
from torch import nn
from torch.distributed.fsdp import fully_shard

from ftruntime.protocol.errors import ConfigError
from ftruntime.train import Trainer, replica_mesh  # (ft)

LENGTH = 64  # bytes of a document that are trained


class Documents:
    """An endless corpus: document ``index`` of ``stream`` is the same in every process."""

    def __init__(self, seed=0):
        self.seed = seed

    def tokens(self, stream, index):
        fake = Faker("en_US")
        fake.seed_instance(zlib.crc32(f"{self.seed}/{stream}/{index}".encode()))
        return fake.text(4 * LENGTH).encode()[: LENGTH + 1].ljust(LENGTH + 1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(query), rotate(key), value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def rotate(x):
    """Rotary positions."""
    length, half = x.shape[-2], x.shape[-1] // 2
    frequency = 10_000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(length)[:, None] * frequency
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()], -1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A language model over bytes."""

    def __init__(self, width, heads, depth):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, documents):
    """Summed over documents (the runtime divides by all replicas' documents), averaged over their bytes."""
    tokens = torch.tensor([list(document) for document in documents])
    logits = model(tokens[:, :-1])
    losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    return losses / (tokens.shape[1] - 1)


def shard(model):
    """FSDP2 over the ranks of this replica; a replica of one rank trains the plain model."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    mesh = replica_mesh()  # (ft)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--samples", type=int, default=8, help="documents of a replica in a step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--audit", action="store_true", help="write what the checker needs")
    parser.add_argument("--save", help="file for the parameters of rank 0 at the end")
    parser.add_argument("--timeouts", help="seconds, as in chunk=1.5,round=6 (docs/driver.md)")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Llama(arguments.width, 4, arguments.depth)
    shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / arguments.steps))
    )
    trainer = Trainer(  # (ft)
        model, optimizer, Documents(), scheduler=scheduler, samples_per_step=arguments.samples,
        max_norm=1.0, audit=arguments.audit, config=more_config(arguments.timeouts),
    )  # fmt: skip
    for step in trainer.steps(until=arguments.steps):  # (ft)
        total = 0.0
        for documents in step.batches(of=4):  # (ft)
            loss = loss_of(model, documents)
            loss.backward()
            total += loss.item()
        if trainer.me.position == 0 and step.number % 10 == 0:
            print(f"replica {trainer.me.replica} step {step.number} loss {total / len(step.samples):.4f}")
    if arguments.save and trainer.me.position == 0:
        torch.save([p.detach() for p in trainer.trainee.tensors], f"{arguments.save}.{trainer.me.replica}")


def more_config(timeouts):
    """The job's configuration, beyond what the trainer knows."""
    from ftruntime.protocol.config import Timeouts

    pairs = [part.split("=") for part in timeouts.split(",")] if timeouts else []
    return {"timeouts": Timeouts(**{name: float(value) for name, value in pairs})}


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(f"train_lm: {error}")
