"""Reading heads: what they attend to, how much they matter, which role they play, and links."""

from latentheads.reading.alignments import (
    AlignmentDistributions,
    LinkScore,
    alignment_distributions,
    best_attention,
    likeliest_links,
    score_alignments,
    score_attention,
)
from latentheads.reading.conllu import Parsed, encode_parsed, read_conllu
from latentheads.reading.divergence import Divergence
from latentheads.reading.head_report import HeadReport
from latentheads.reading.importance import gradient_importance
from latentheads.reading.labelled import labelled
from latentheads.reading.labels import name_positions, name_sides, name_tokens
from latentheads.reading.measures import (
    Measures,
    head_confidence,
    head_cosine,
    head_entropy,
    measure,
)
from latentheads.reading.noise import NoisyHeads, learn_noise, noise_cost
from latentheads.reading.positional import Positional, Positions
from latentheads.reading.rare import RareWord, Rarity, frequency_ranks
from latentheads.reading.record import Heads, Recording, readings
from latentheads.reading.relevance import Propagated, Relevance, propagate, relevance
from latentheads.reading.roles import Detector, Role, View, detect, role_map
from latentheads.reading.samples import DrawnWeights, drawn_weights, prior_readings
from latentheads.reading.sides import EXCLUDE, Sides, sides
from latentheads.reading.syntactic import RELATIONS, Case, Relations, Syntactic, grammar_arcs

__all__ = [
    "EXCLUDE",
    "RELATIONS",
    "AlignmentDistributions",
    "Case",
    "Detector",
    "Divergence",
    "DrawnWeights",
    "HeadReport",
    "Heads",
    "LinkScore",
    "Measures",
    "NoisyHeads",
    "Parsed",
    "Positional",
    "Positions",
    "Propagated",
    "RareWord",
    "Rarity",
    "Recording",
    "Relations",
    "Relevance",
    "Role",
    "Sides",
    "Syntactic",
    "View",
    "alignment_distributions",
    "best_attention",
    "detect",
    "drawn_weights",
    "encode_parsed",
    "frequency_ranks",
    "gradient_importance",
    "grammar_arcs",
    "head_confidence",
    "head_cosine",
    "head_entropy",
    "labelled",
    "learn_noise",
    "likeliest_links",
    "measure",
    "name_positions",
    "name_sides",
    "name_tokens",
    "noise_cost",
    "prior_readings",
    "propagate",
    "read_conllu",
    "readings",
    "relevance",
    "role_map",
    "score_alignments",
    "score_attention",
    "sides",
]
