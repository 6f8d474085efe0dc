"""Causal delivery by gossip (Kim and Ahn, corrected): brokers, and clients that may move."""
