"""From a level to the application: events or relations, with positions."""
