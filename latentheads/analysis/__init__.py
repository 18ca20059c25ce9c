"""Reading heads: what they attend to, how much they matter, which role they play, and links."""

from latentheads.analysis.alignments import (
    AlignmentDistributions,
    LinkScore,
    alignment_distributions,
    best_attention,
    likeliest_links,
    score_alignments,
    score_attention,
)
from latentheads.analysis.conllu import Parsed, encode_parsed, read_conllu
from latentheads.analysis.divergence import Divergence
from latentheads.analysis.head_report import HeadReport
from latentheads.analysis.importance import gradient_importance
from latentheads.analysis.labelled import labelled
from latentheads.analysis.labels import name_positions, name_sides, name_tokens
from latentheads.analysis.measures import (
    Measures,
    head_confidence,
    head_cosine,
    head_entropy,
    measure,
)
from latentheads.analysis.noise import NoisyHeads, learn_noise, noise_cost
from latentheads.analysis.positional import Positional, Positions
from latentheads.analysis.rare import RareWord, Rarity, frequency_ranks
from latentheads.analysis.record import Heads, Recording, readings
from latentheads.analysis.relevance import Propagated, Relevance, propagate, relevance
from latentheads.analysis.roles import Detector, Role, View, detect, role_map
from latentheads.analysis.samples import DrawnWeights, drawn_weights, prior_readings
from latentheads.analysis.sides import EXCLUDE, Sides, sides
from latentheads.analysis.syntactic import RELATIONS, Case, Relations, Syntactic, grammar_arcs

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
