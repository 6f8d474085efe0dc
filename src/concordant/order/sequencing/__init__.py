"""Total notification order: one order across topics without one sequencer for all of them."""
