"""Alignments: few-valued heads above the decoder, whose posterior is known exactly."""
