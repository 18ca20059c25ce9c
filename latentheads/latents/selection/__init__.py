"""Selection of heads for each task, by one of several strategies."""
