"""Slow, literal implementations that fast ones are compared with."""
