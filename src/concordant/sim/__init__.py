"""Driver 1: protocols in virtual time, with faults, from a seed."""
