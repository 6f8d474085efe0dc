"""Events to one agreed sequence: a module or package per way to do it."""
