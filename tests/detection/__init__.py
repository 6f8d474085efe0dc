"""Planted bugs: proof that the checks would notice."""
