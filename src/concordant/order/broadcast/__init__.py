"""Baselines: total order by broadcast, where everybody gets everything."""
