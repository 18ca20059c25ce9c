"""An attack on the programs: kills and damage.

``make attack`` runs it whole; its quick part is in the suite.
"""
