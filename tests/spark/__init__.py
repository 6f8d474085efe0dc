"""Correlation on a real Spark: one session for all tests, jobs small and few."""
