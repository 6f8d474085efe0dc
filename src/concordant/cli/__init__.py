"""The commands, one file each. Thin: they read arguments, call one function, print the result."""
