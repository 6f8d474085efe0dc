"""Transactions of several clients over the overlay: all of their operations count, or none."""
