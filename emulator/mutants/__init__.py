"""Mutants of the protocol, and the hunt for them: does a campaign notice when a safeguard is gone?"""
