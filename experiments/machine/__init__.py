"""What a machine is asked in the time that it is lent for: jobs, what they measure, the report."""
