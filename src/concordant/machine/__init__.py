"""The sans-IO contract of every protocol: inputs in, effects out; see `machine.contract`."""
