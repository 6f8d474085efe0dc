"""Long searches for violations: `python -m tests.campaign`. One module per thing searched."""
