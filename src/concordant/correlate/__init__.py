"""Ordered events in, relations out. Pure: no clock, no file, no thread, no randomness."""
