"""What flows: events, topics, subscriptions, relations. Values only, no behaviour over time."""
