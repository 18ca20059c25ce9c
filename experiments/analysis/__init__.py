"""Reading the heads of finished runs: on which text, what they are like, and how it is told."""
