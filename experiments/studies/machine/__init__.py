"""The parts of gpu.py: the plan of jobs for a machine, what they measure, the report."""
