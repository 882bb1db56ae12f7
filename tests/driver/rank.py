"""The process of one rank in the tests: ``python -m tests.driver.rank FILE`` with settings in FILE."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from ftruntime.data import corpus_digest, sample_ids
from ftruntime.driver import Driver, Settings, Stopped

from .toy import Tokens, Toy


def main(file, pause):
    settings = msgspec.json.decode(Path(file).read_bytes(), type=Settings, dec_hook=lambda kind, x: kind(x))
    toy, corpus = Toy(settings.position, len(settings.config.ftar.buckets)), Tokens()
    driver = Driver(settings, toy)
    driver.start()
    try:
        while True:
            work = driver.worker.next()
            time.sleep(pause)
            tokens = b"".join(corpus.tokens(*sample) for sample in sample_ids(work.ranges))
            work.corpus_digest = corpus_digest(corpus, work.ranges)
            for bucket, block in enumerate(work.grads):
                block.view(np.float32)[:] = toy.gradient(bucket, tokens)
                work.ready(bucket)
    except Stopped:
        return


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
