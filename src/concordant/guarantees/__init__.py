"""What a subscription keeps and loses: the table as data, and the search for counterexamples."""
