"""Circuits of three tasks in SmolLM2-135M, and of planted circuits in small networks."""
