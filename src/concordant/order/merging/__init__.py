"""Ordered merging: events of several topics in one agreed sequence per signature (Wilkin 2015)."""
