"""Analysis of heads: recording, measures, importance, relevance, roles and word alignment."""

from latentheads.contrib.heads.alignment_heads import (
    AlignmentHead,
    AlignmentHeads,
    fit_alignment_heads,
)
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
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes, jump_chain
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.boundaries.model import BoundaryModel
from latentheads.contrib.heads.boundaries.pyro_model import attention_model
from latentheads.contrib.heads.conllu import ParsedSentence, encode_parsed, read_conllu
from latentheads.contrib.heads.datatree import to_datatree
from latentheads.contrib.heads.divergence import Divergence, divergence
from latentheads.contrib.heads.dtw_heads import heads_for_dtw
from latentheads.contrib.heads.head_exports import (
    to_generation_config,
    to_nllw,
    to_openai,
    to_whisper_cpp,
)
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
from latentheads.contrib.heads.kept import load_alignment_heads, save_alignment_heads
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
from latentheads.contrib.heads.word_attention import (
    ForcedExample,
    WordAttention,
    record_word_attention,
    to_word_attention,
)

__all__ = [
    "EXCLUDE",
    "RELATIONS",
    "AlignmentDistributions",
    "AlignmentHead",
    "AlignmentHeads",
    "AnalysisOptions",
    "AttentionTokens",
    "AttentionView",
    "BoundaryModel",
    "BoundaryTimes",
    "Counterfactual",
    "Detector",
    "DirectedRelation",
    "Divergence",
    "FitOptions",
    "ForcedExample",
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
    "WordAttention",
    "Zero",
    "align",
    "alignment_distributions",
    "analyse",
    "attention_model",
    "attention_tokens",
    "detect",
    "divergence",
    "encode_parsed",
    "fit_alignment_heads",
    "frequency_ranks",
    "gradient_importance",
    "grammar_arcs",
    "head_confidence",
    "head_cosine",
    "head_entropy",
    "heads_for_dtw",
    "intervene",
    "jump_chain",
    "label_head",
    "learn_noise",
    "likeliest_links",
    "load_alignment_heads",
    "measure",
    "name_positions",
    "name_queries_and_keys",
    "name_tokens",
    "noise_cost",
    "propagate",
    "read_conllu",
    "record_heads",
    "record_prior_heads",
    "record_word_attention",
    "relevance",
    "role_map",
    "sample_weights",
    "save_alignment_heads",
    "score_alignments",
    "score_attention",
    "score_best_attention",
    "to_datatree",
    "to_generation_config",
    "to_nllw",
    "to_openai",
    "to_whisper_cpp",
    "to_word_attention",
]
