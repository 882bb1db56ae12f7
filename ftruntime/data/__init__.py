"""Data that obeys the ledger: sources of samples, the sampler, and the loader (design 3.6)."""

from __future__ import annotations

from .loader import StatefulLoader
from .sampler import LedgerSampler
from .source import SampleId, SampleSource, corpus_digest, sample_ids
from .textfile import TextFileCorpus

__all__ = [
    "LedgerSampler",
    "SampleId",
    "SampleSource",
    "StatefulLoader",
    "TextFileCorpus",
    "corpus_digest",
    "sample_ids",
]
