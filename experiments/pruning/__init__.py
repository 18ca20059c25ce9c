"""What prune.py is made of: smaller networks of a run, as run folders with a report, and timed."""
