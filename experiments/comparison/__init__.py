"""The parts of compare.py, sweep.py and score.py: recipes and seeds, jobs, systems, summaries."""
