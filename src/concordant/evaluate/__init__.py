"""Workloads from a seed, sweeps over them, metrics and figures."""
