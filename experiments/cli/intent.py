"""The intent of a command line: everything about a run that other options depend on."""

from __future__ import annotations

from dataclasses import dataclass

from jsonargparse import Namespace

from latentheads.alignment.options import AlignmentOptions
from latentheads.checks import split_items
from latentheads.corpora.data import OF_ONE_DIRECTION, Data
from latentheads.experiments.cli.names import spec_of
from latentheads.guides import GUIDES, ModelGuide
from latentheads.models import Prior
from latentheads.models.mixing import STACKS, parse_mixers
from latentheads.names import parse_attention_types
from latentheads.runs.pairs import join_pair
from latentheads.training.needs import Draws
from latentheads.values import take_group

__all__ = ["Intent"]


@dataclass(frozen=True)
class Intent(Draws):
    """Everything about an intended run that its options may need.

    Attributes:
        options: All options.
        data: The corpus.
        alignment: Blocks above the decoder.
        prior: Class of the prior.
        guide: Class of the guide.
    """

    options: Namespace
    data: Data
    alignment: AlignmentOptions
    prior: type[Prior]
    guide: type[ModelGuide]

    @classmethod
    def read(cls, options: Namespace) -> Intent:
        """Reads a command line that was parsed."""
        data, alignment = _read_data(options), take_group(AlignmentOptions, vars(options))
        of_logits = not spec_of("prior", options).find("prior").deterministic
        alignment = alignment.with_default_blocks(data.alone, of_logits)
        pair = join_pair(spec_of("prior", options), spec_of("guide", options), alignment.is_latent)
        return cls(options, data, alignment, pair.prior_class, pair.guide_class)

    @property
    def translates(self) -> bool:
        """Whether there is a source."""
        return not self.data.alone

    @property
    def pairs(self) -> bool:
        """Whether the corpus is text in pairs of files or columns."""
        return not (self.data.made or self.data.running or self.data.is_speech)

    @property
    def subwords(self) -> bool:
        """Whether a vocabulary is learned by BPE."""
        subwords = self.data.running and self.data.unit == "subword"
        return self.pairs or self.data.is_speech or subwords

    @property
    def names_source(self) -> bool:
        """Whether the language translated from has to be said."""
        directions = [task.rpartition(":")[2] for task in split_items(self.data.tasks)]
        return self.pairs and not all("-" in direction for direction in directions)

    @property
    def mixers(self) -> set[str]:
        """What mixes positions, in an encoder too where there is one."""
        return {kind for stack in STACKS for kind in self.stack(stack)}

    def stack(self, name: str) -> list[str]:
        """What mixes positions in every layer of the encoder or the decoder."""
        if name == STACKS[0] and not self.translates:
            return []
        lower = name == STACKS[1] and self.options.decoder_layers
        said = (self.options.mixers, "", "", name, lower or self.options.layers)
        return [mixing.kind for mixing in parse_mixers(*said)]

    @property
    def samples_logits(self) -> bool:
        """Whether attention heads are drawn."""
        return not self.prior.deterministic and parse_attention_types(self.options.latent) != ()

    @property
    def tells_logits(self) -> bool:
        """Whether logits are drawn that a guide may move by what it reads of the target."""
        chains = parse_attention_types(self.options.latent)
        read = {"decoder-cross"} if self.translates else set()
        read |= {"decoder-self"} if "attention" in self.stack("decoder") else set()
        return self.samples_logits and bool(read if chains is None else read & set(chains))

    @property
    def samples_heads(self) -> bool:
        """Whether heads are drawn, of attention or of n-grams."""
        return self.samples_logits or self.options.ngram_noise > 0

    @property
    def samples_selection(self) -> bool:
        """Whether the choice of heads is drawn."""
        return self.options.select not in ("none", "static")

    @property
    def gates(self) -> bool:
        """Whether heads have gates."""
        return bool(self.options.gates != "none")

    @property
    def aligns(self) -> bool:
        """Whether alignment blocks stand above the decoder."""
        return self.alignment.blocks > 0

    @property
    def samples_alignments(self) -> bool:
        """Whether alignments are drawn."""
        return self.alignment.is_latent

    @property
    def is_tied(self) -> bool:
        """Whether the guide is the prior."""
        return self.guide is GUIDES["tied"]


def _read_data(options: Namespace) -> Data:
    """The corpus; options of a single direction act on nothing where there are tasks."""
    said = options.clone()
    for name in OF_ONE_DIRECTION if said.tasks else ():
        said[name] = getattr(Data, name)
    return take_group(Data, vars(said))
