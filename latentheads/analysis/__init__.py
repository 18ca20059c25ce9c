"""Analysis of heads: recording, measures, importance, relevance, roles and word alignment."""

from latentheads.analysis.alignments import (
    AlignmentDistributions,
    LinkScore,
    alignment_distributions,
    likeliest_links,
    score_alignments,
    score_attention,
    score_best_attention,
)
from latentheads.analysis.conllu import ParsedSentence, encode_parsed, read_conllu
from latentheads.analysis.datatree import to_datatree
from latentheads.analysis.divergence import Divergence
from latentheads.analysis.head_report import HeadReport
from latentheads.analysis.importance import gradient_importance
from latentheads.analysis.labels import name_positions, name_queries_and_keys, name_tokens
from latentheads.analysis.measures import (
    Measures,
    head_confidence,
    head_cosine,
    head_entropy,
    measure,
)
from latentheads.analysis.noise import NoisyHeads, learn_noise, noise_cost
from latentheads.analysis.positional import PositionalDetector, PositionalHeads
from latentheads.analysis.rare import RareWordDetector, RareWordHeads, frequency_ranks
from latentheads.analysis.record import Heads, Recording, record_heads
from latentheads.analysis.relevance import Propagated, Relevance, propagate, relevance
from latentheads.analysis.roles import AttentionView, Detector, Role, detect, role_map
from latentheads.analysis.samples import SampledWeights, record_prior_heads, sample_weights
from latentheads.analysis.syntactic import (
    RELATIONS,
    DirectedRelation,
    SyntacticDetector,
    SyntacticHeads,
    grammar_arcs,
)
from latentheads.analysis.tokens import EXCLUDE, AttentionTokens, attention_tokens

__all__ = [
    "EXCLUDE",
    "RELATIONS",
    "AlignmentDistributions",
    "AttentionTokens",
    "AttentionView",
    "Detector",
    "DirectedRelation",
    "Divergence",
    "HeadReport",
    "Heads",
    "LinkScore",
    "Measures",
    "NoisyHeads",
    "ParsedSentence",
    "PositionalDetector",
    "PositionalHeads",
    "Propagated",
    "RareWordDetector",
    "RareWordHeads",
    "Recording",
    "Relevance",
    "Role",
    "SampledWeights",
    "SyntacticDetector",
    "SyntacticHeads",
    "alignment_distributions",
    "attention_tokens",
    "detect",
    "encode_parsed",
    "frequency_ranks",
    "gradient_importance",
    "grammar_arcs",
    "head_confidence",
    "head_cosine",
    "head_entropy",
    "learn_noise",
    "likeliest_links",
    "measure",
    "name_positions",
    "name_queries_and_keys",
    "name_tokens",
    "noise_cost",
    "propagate",
    "read_conllu",
    "record_heads",
    "record_prior_heads",
    "relevance",
    "role_map",
    "sample_weights",
    "score_alignments",
    "score_attention",
    "score_best_attention",
    "to_datatree",
]
