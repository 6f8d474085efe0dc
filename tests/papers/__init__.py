"""The papers' claims, one test each, cited by author and year."""
