"""What a run reports, typed: the content of ``results.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any

from latentheads.inference.display import figures_to_html, figures_to_text
from latentheads.names import ALIGNMENT, ATTENTION_TYPES, attention_type_of, layer_of
from latentheads.values import convert

__all__ = ["Figures", "Perplexity", "Results"]

Figure = float | None
"""A number, or null where it is none or not known."""


@dataclass(frozen=True)
class Figures:
    """What is known of a part of the corpus; see :class:`latentheads.inference.evaluation.Report`.

    Attributes:
        elbo: The bound, a mean over the draws, in nats a target token as the next ones.
        log_likelihood: Its first term.
        kl: Its second term.
        iwae: The tighter bound IWAE_K.
        iwae_k: K.
        plug_in: Log-likelihood of the deterministic network, no bound.
        tokens: Target tokens.
        effective_sample_size: Of the K importance weights.
        pareto_k: Share of sentences whose weights have too heavy a tail.
        pareto_unknown: Share of sentences whose tail is not known.
        truth: The exact log p of those sentences that it is known of.
        truth_elbo: The bound on these sentences alone.
        truth_sentences: How many they are.
        sentences: All sentences.
        exact: Log p(y | x) itself, summed over all alignments.
        gap: What the guide's bound lacks of it.
        prior_entropy: Of the alignments of a word.
        posterior_entropy: The same given the word, exact.
        information: What a word says of its alignments.
        bleu: BLEU of the translations.
        bleu_signature: How it was counted.
        chrf: chrF2.
        chrf_signature: How it was counted.
        paper_bleu: BLEU by the papers' protocol.
        paper_signature: How it was counted.
        accuracy: Share of translations that are right to the letter, in percent.
        accuracy_signature: How it was counted.
        edit_distance: Mean number of edits to the right one.
        edit_signature: How it was counted.
        rouge1: ROUGE-1 of the summaries; ``lead_rouge1`` that of every source's first sentence.
        rouge2: ROUGE-2.
        rouge_l: ROUGE-L.
        signature: How ROUGE was counted.
        lead_rouge1: See rouge1.
        lead_rouge2: See rouge1.
        lead_rouge_l: See rouge1.
        lead_signature: See rouge1.
        sentences_per_second: Speed of translation.
        wer: Word error rate of recognition, in percent.
        wer_low: Lower end of its 95 % interval.
        wer_high: Upper end.
        substitutions: Words that are another one.
        deletions: Words that are missing.
        insertions: Words that nobody said.
        words: Words of the references.
        wer_signature: How it was counted.
        cer: Character error rate.
        cer_low: Lower end of its 95 % interval.
        cer_high: Upper end.
        cer_signature: How it was counted.
        paper_wer: WER by the papers' protocol.
        paper_wer_signature: How it was counted.
        ctc_wer: WER of CTC, a head of training alone.
        ctc_cer: Its CER.
    """

    elbo: Figure = None
    log_likelihood: Figure = None
    kl: Figure = None
    iwae: Figure = None
    iwae_k: int | None = None
    plug_in: Figure = None
    tokens: int | None = None
    effective_sample_size: Figure = None
    pareto_k: Figure = None
    pareto_unknown: Figure = None
    truth: Figure = None
    truth_elbo: Figure = None
    truth_sentences: int | None = None
    sentences: int | None = None
    exact: Figure = None
    gap: Figure = None
    prior_entropy: Figure = None
    posterior_entropy: Figure = None
    information: Figure = None
    bleu: Figure = None
    bleu_signature: str | None = None
    chrf: Figure = None
    chrf_signature: str | None = None
    paper_bleu: Figure = None
    paper_signature: str | None = None
    accuracy: Figure = None
    accuracy_signature: str | None = None
    edit_distance: Figure = None
    edit_signature: str | None = None
    rouge1: Figure = None
    rouge2: Figure = None
    rouge_l: Figure = None
    signature: str | None = None
    lead_rouge1: Figure = None
    lead_rouge2: Figure = None
    lead_rouge_l: Figure = None
    lead_signature: str | None = None
    sentences_per_second: Figure = None
    wer: Figure = None
    wer_low: Figure = None
    wer_high: Figure = None
    substitutions: int | None = None
    deletions: int | None = None
    insertions: int | None = None
    words: int | None = None
    wer_signature: str | None = None
    cer: Figure = None
    cer_low: Figure = None
    cer_high: Figure = None
    cer_signature: str | None = None
    paper_wer: Figure = None
    paper_wer_signature: str | None = None
    ctc_wer: Figure = None
    ctc_cer: Figure = None

    def to_json(self) -> dict[str, Any]:
        """Those groups of figures that are known, null for a figure that is not."""
        groups = [[getattr(self, name) for name in group] for group in KNOWN_TOGETHER]
        return {
            name: value
            for names, values in zip(KNOWN_TOGETHER, groups, strict=True)
            for name, value in zip(names, values, strict=True)
            if any(each is not None for each in values)
        }

    def __repr__(self) -> str:
        known = ((name, getattr(self, name)) for name in NAMES)
        return f"Figures({', '.join(f'{name}={x!r}' for name, x in known if x is not None)})"


NAMES = [each.name for each in fields(Figures)]
FIRST = ("elbo", "exact", "bleu", "rouge1", "lead_rouge1", "sentences_per_second", "wer", "ctc_wer")
"""The first of each group: the bound, alignments, translations, summaries, their baseline, speed,
recognition, CTC."""

KNOWN_TOGETHER = [
    NAMES[start:end] for start, end in pairwise([*map(NAMES.index, FIRST), len(NAMES)])
]


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a part of a text, cut in one way.

    Attributes:
        mode: How the text is cut.
        part: valid or test.
        tokens: Target tokens.
        iwae_k: K of IWAE.
        token: From the bound, from IWAE, of the plug-in network, and exact where it is known, by
            token.
        word: The same by word; empty where words were not counted.
    """

    mode: str
    part: str
    tokens: int
    iwae_k: int
    token: Mapping[str, Figure]
    word: Mapping[str, Figure]


@dataclass(frozen=True)
class Results:
    """What a run reports.

    Attributes:
        recipe: Name of the pair of prior and guide.
        guide: Name of the guide.
        select: How heads are selected.
        prior: Name of the prior.
        corpus: Name of the corpus.
        seed: Of data order and noise, and of weights that settings made.
        steps: Updates done.
        reported_step: Updates that the reported weights have seen.
        averaged: How many checkpoints they are the average of; 0: none.
        parameters: Of model and guide.
        tokens_per_second: Target tokens trained on, a second.
        head_divergence: Mean Jensen-Shannon divergence between the heads of a block.
        head_divergence_by_chain: The same of each chain.
        valid: Figures of validation.
        test: Figures of test.
        tasks: Those of each task.
        average: Their mean over tasks.
        perplexity: Of a text, for each way to cut it and each part.
        decoding: How the test part was translated.
        kl_by_site: KL of every site on test.
        gap_by_site: What every block of alignments lacks of the exact posterior there.
        kl_how: How it was computed.
        selection: Which heads every task speaks with.
        gates: What has become of the gates.
        versions: Of torch, and the device.
        missing: What the report lacks, and why.
        pruned: Where a pruned network comes from.
    """

    recipe: str = ""
    guide: str = ""
    select: str = "none"
    prior: str = ""
    corpus: str = ""
    seed: int = 0
    steps: int = 0
    reported_step: int = 0
    averaged: int = 0
    parameters: int = 0
    tokens_per_second: Figure = None
    head_divergence: Figure = None
    head_divergence_by_chain: Mapping[str, Figure] = field(default_factory=dict)
    valid: Figures = Figures()
    test: Figures = Figures()
    tasks: Mapping[str, Figures] = field(default_factory=dict)
    average: Mapping[str, Figure] = field(default_factory=dict)
    perplexity: tuple[Perplexity, ...] = ()
    decoding: Mapping[str, Any] = field(default_factory=dict)
    kl_by_site: Mapping[str, Figure] = field(default_factory=dict)
    gap_by_site: Mapping[str, Figure] = field(default_factory=dict)
    kl_how: Mapping[str, str] = field(default_factory=dict)
    selection: Mapping[str, Any] = field(default_factory=dict)
    gates: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    pruned: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, said: Any) -> Results:
        """Reads what :meth:`to_json` gives.

        Raises:
            ValueError: It lacks what every report has, or holds another kind of value.
        """
        if not isinstance(said, dict) or not said.keys() >= set(REQUIRED):
            raise ValueError(f"results must hold {', '.join(REQUIRED)}")
        found: Results = convert("results", cls, said)
        for site in found.kl_by_site:
            if not _is_site(site) or site not in found.kl_how:
                raise ValueError(f"results: kl_by_site: {site!r} is no site")
        return found

    def to_json(self) -> dict[str, Any]:
        """The content of ``results.json``: null for what is no number or not known."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["valid"], found["test"] = self.valid.to_json(), self.test.to_json()
        found["tasks"] = {name: _put_first(each.to_json()) for name, each in self.tasks.items()}
        found["perplexity"] = [asdict(each) for each in self.perplexity]
        for name in ("missing", "pruned"):
            if not found[name]:
                del found[name]
        return found

    def __str__(self) -> str:
        return figures_to_text(*self._name_parts(), self.missing)

    def _repr_html_(self) -> str:
        return figures_to_html(*self._name_parts(), self.missing)

    def _name_parts(self) -> tuple[dict[str, dict[str, Any]], str]:
        """The figures of both parts, and what they are of."""
        parts = {"valid": self.valid.to_json(), "test": self.test.to_json()}
        return parts, f"{self.recipe} on {self.corpus}, seed {self.seed}, {self.steps:,} updates"


REQUIRED = (
    *("valid", "test", "kl_by_site", "kl_how", "parameters", "tokens_per_second"),
    *("head_divergence", "head_divergence_by_chain"),
)
"""Keys that every report has."""


def _is_site(name: str) -> bool:
    """Whether a name is that of a site, as ``encoder.0.self.logits``."""
    try:
        return layer_of(name) >= 0 and attention_type_of(name) in (*ATTENTION_TYPES, ALIGNMENT)
    except (IndexError, ValueError):
        return False


def _put_first(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures of a task, the number of its sentences first."""
    return {"sentences": figures.pop("sentences", None), **figures}
