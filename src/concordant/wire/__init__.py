"""Messages as bytes and back: versioned, bounded, and never trusted."""
