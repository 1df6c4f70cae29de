"""Scoring each file of a folder once: its parts, its ledger, and what is new."""
