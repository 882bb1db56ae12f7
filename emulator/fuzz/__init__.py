"""Campaigns of random cases over the real protocol: run, judged, tallied, and made small when they fail."""
