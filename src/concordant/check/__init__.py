"""The papers' properties: rows of history to verdicts with the first violation."""
