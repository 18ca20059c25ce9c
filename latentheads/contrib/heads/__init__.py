"""Analysis of heads: recording, measures, importance, relevance, roles and word alignment."""

from latentheads.contrib.heads.alignments import (
    AlignmentDistributions,
    LinkScore,
    alignment_distributions,
    likeliest_links,
    score_alignments,
    score_attention,
    score_best_attention,
)
from latentheads.contrib.heads.analysis import AnalysisOptions, analyse
from latentheads.contrib.heads.conllu import ParsedSentence, encode_parsed, read_conllu
from latentheads.contrib.heads.datatree import to_datatree
from latentheads.contrib.heads.divergence import Divergence
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.contrib.heads.importance import gradient_importance
from latentheads.contrib.heads.interventions import (
    Counterfactual,
    Intervention,
    Mean,
    Window,
    Zero,
    intervene,
)
from latentheads.contrib.heads.labels import name_positions, name_queries_and_keys, name_tokens
from latentheads.contrib.heads.measures import (
    Measures,
    head_confidence,
    head_cosine,
    head_entropy,
    measure,
)
from latentheads.contrib.heads.noise import NoisyHeads, learn_noise, noise_cost
from latentheads.contrib.heads.positional import PositionalDetector, PositionalHeads
from latentheads.contrib.heads.rare import RareWordDetector, RareWordHeads, frequency_ranks
from latentheads.contrib.heads.record import Heads, Recording, record_heads
from latentheads.contrib.heads.relevance import Propagated, Relevance, propagate, relevance
from latentheads.contrib.heads.roles import AttentionView, Detector, Role, detect, role_map
from latentheads.contrib.heads.samples import SampledWeights, record_prior_heads, sample_weights
from latentheads.contrib.heads.switch import NetworkHeads, label_head
from latentheads.contrib.heads.syntactic import (
    RELATIONS,
    DirectedRelation,
    SyntacticDetector,
    SyntacticHeads,
    grammar_arcs,
)
from latentheads.contrib.heads.tokens import EXCLUDE, AttentionTokens, attention_tokens
from latentheads.contrib.heads.word_alignment import align

__all__ = [
    "EXCLUDE",
    "RELATIONS",
    "AlignmentDistributions",
    "AnalysisOptions",
    "AttentionTokens",
    "AttentionView",
    "Counterfactual",
    "Detector",
    "DirectedRelation",
    "Divergence",
    "HeadReport",
    "Heads",
    "Intervention",
    "LinkScore",
    "Mean",
    "Measures",
    "NetworkHeads",
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
    "Window",
    "Zero",
    "align",
    "alignment_distributions",
    "analyse",
    "attention_tokens",
    "detect",
    "encode_parsed",
    "frequency_ranks",
    "gradient_importance",
    "grammar_arcs",
    "head_confidence",
    "head_cosine",
    "head_entropy",
    "intervene",
    "label_head",
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
