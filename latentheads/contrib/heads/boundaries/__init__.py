"""When each word of a sound starts, by heads that follow it: a model of boundaries, and its fit."""
