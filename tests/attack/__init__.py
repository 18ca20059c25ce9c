"""An attack on the programs: kills, damage, hostile folders, absurd options.

``make attack`` runs it whole; its quick part is in the suite.
"""
