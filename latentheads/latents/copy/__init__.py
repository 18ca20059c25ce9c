"""Copy heads: a token is generated, or it is the token at a position that a head points at."""
