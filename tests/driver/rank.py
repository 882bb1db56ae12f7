"""The process of one rank in the tests: ``python -m tests.driver.rank FILE PAUSE UNTIL SLOW_S``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from ftruntime.data import corpus_digest, sample_ids
from ftruntime.driver import Driver, Settings

from .toy import Tokens, Toy


def main(file, pause, until, slow_s):
    settings = msgspec.json.decode(Path(file).read_bytes(), type=Settings, dec_hook=lambda kind, x: kind(x))
    toy = Toy(settings.position, len(settings.config.ftar.buckets), slow_step=until, slow_s=slow_s)
    corpus = Tokens()
    driver = Driver(settings, toy)
    driver.start(until)
    for work in driver.worker.works():
        time.sleep(pause)
        tokens = b"".join(corpus.tokens(*sample) for sample in sample_ids(work.ranges))
        work.corpus_digest = corpus_digest(corpus, work.ranges)
        for bucket, block in enumerate(work.grads):
            block.view(np.float32)[:] = toy.gradient(bucket, tokens)
            work.ready(bucket)
    driver.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
