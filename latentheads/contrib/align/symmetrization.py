r"""Links of a sentence pair from the posteriors of both directions.

Directional links are those of the likeliest choice of each word, a position or none. They are
joined by intersection or by growing (grow-diag-final-and, Koehn et al. 2003,
https://aclanthology.org/N03-1017). ``product`` thresholds the geometric mean of both posteriors,

.. math:: \sqrt{r^{\to}_{st}\, r^{\leftarrow}_{st}} \ge \theta,

after Liang et al. 2006, https://aclanthology.org/N06-1014. ``grow`` starts from these links, and
adds neighbours of links for words that have none, as growing does, but by their probability: a word
that several words of the other language translate together has one link in the one direction and
several in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from latentheads.checks import check_choice
from latentheads.frames import in_one_line
from latentheads.metrics.alignment import Link, Links

THRESHOLD = 0.4
"""The least geometric mean of both directions' probabilities of a link of ``product``."""

GROWN = 0.6
"""The least probability, in the direction that generates its word, of a link that ``grow`` adds."""

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class LinkPosterior:
    """The posterior of the links of a sentence pair; all NaN if it was not aligned.

    Attributes:
        forward: The probability of each link if the source generates the target: columns sum to at
            most 1.
        backward: The same of the other direction: rows sum to at most 1.
        log_probs: log p(target | source) and log p(source | target) in nats; of the aligner with
            the end of the sentence. NaN if they are not known.
        nulls: The probability that each source word, and that each target word, has no link; None:
            what its links leave, which is right where a word is one token.
    """

    forward: Float[ndarray, "source target"]
    backward: Float[ndarray, "source target"]
    log_probs: tuple[float, float]
    nulls: tuple[Float[ndarray, " source"], Float[ndarray, " target"]] | None = None

    __repr__ = in_one_line

    @classmethod
    def unknown(cls, source: int, target: int) -> LinkPosterior:
        """That of a pair that is not aligned, by its numbers of words: it has no links."""
        links = np.full((source, target), np.nan, dtype=np.float32)
        nulls = np.full(source, np.nan, links.dtype), np.full(target, np.nan, links.dtype)
        return cls(links, links, (np.nan, np.nan), nulls)

    @property
    def product(self) -> Float[ndarray, "source target"]:
        """The geometric mean of both directions."""
        return np.sqrt(self.forward * self.backward)

    @property
    def null_source(self) -> Float[ndarray, " source"]:
        """The probability that each source word has no link, in the direction that generates it.

        Far too high: of words with .9 or more people link about half, or most (``docs/align.md``).
        """
        return np.clip(1 - self.backward.sum(1), 0, 1) if self.nulls is None else self.nulls[0]

    @property
    def null_target(self) -> Float[ndarray, " target"]:
        """The same of each target word, as far too high."""
        return np.clip(1 - self.forward.sum(0), 0, 1) if self.nulls is None else self.nulls[1]


def forward_links(posterior: LinkPosterior) -> Links:
    """The likeliest choice of each target word."""
    return frozenset((s, t) for t, s in _likeliest(posterior.forward.T, posterior.null_target))


def backward_links(posterior: LinkPosterior) -> Links:
    """The likeliest choice of each source word."""
    return frozenset(_likeliest(posterior.backward, posterior.null_source))


def _likeliest(rows: Float[ndarray, "row column"], null: Float[ndarray, " row"]) -> list[Link]:
    """The likeliest column of each row, where it is likelier than none."""
    if not rows.size:
        return []
    best = rows.argmax(1)
    chosen = np.flatnonzero(rows.max(1) > null)
    return [(int(row), int(best[row])) for row in chosen]


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """Joins the links of both directions, starting from their intersection.

    Neighbours of links that one direction has are added while one of their words is unaligned;
    then links of the forward and of the backward direction between two unaligned words.
    """
    links = set(forward & backward)
    sources, targets = {s for s, _ in links}, {t for _, t in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    union, grown = forward | backward, True
    while grown:
        grown = False
        for source, target in (link for link in sorted(union) if link in links):  # as it grows
            for right, down in NEIGHBOURS:
                link = source + right, target + down
                is_free = link[0] not in sources or link[1] not in targets
                if link in union and link not in links and is_free:
                    add(link)
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(links)


def _as_links(chosen: Bool[ndarray, "source target"]) -> Links:
    return frozenset((int(s), int(t)) for s, t in zip(*chosen.nonzero(), strict=True))


def _grow(posterior: LinkPosterior, threshold: float) -> Links:
    """Adds likely neighbours of links, of words without a link, to those of ``product``."""
    links: Bool[ndarray, "source target"] = np.array(posterior.product >= threshold)
    from_source, from_target = posterior.backward >= GROWN, posterior.forward >= GROWN
    while True:
        padded: Bool[ndarray, "row column"] = np.pad(links, 1)
        is_near = np.zeros_like(links)
        for i, j in NEIGHBOURS:
            is_near |= padded[1 + i : 1 + i + len(links), 1 + j : 1 + j + links.shape[1]]
        is_new_source, is_new_target = (links.sum(1) == 0)[:, None], links.sum(0) == 0
        added = is_near & ((from_source & is_new_source) | (from_target & is_new_target))
        if not added.any():
            break
        links |= added
    return _as_links(links)


SYMMETRIZATIONS: dict[str, Callable[[LinkPosterior, float], Links]] = {
    "product": lambda posterior, threshold: _as_links(posterior.product >= threshold),
    "grow": _grow,
    "intersection": lambda posterior, _: forward_links(posterior) & backward_links(posterior),
    "grow-diag-final-and": lambda posterior, _: grow_diag_final_and(
        forward_links(posterior), backward_links(posterior)
    ),
    "forward": lambda posterior, _: forward_links(posterior),
    "backward": lambda posterior, _: backward_links(posterior),
}
"""How links are selected, by name."""


def select_links(
    posterior: LinkPosterior, symmetrize: str = "product", threshold: float = THRESHOLD
) -> Links:
    """The links of a sentence pair.

    Args:
        posterior: The posterior of both directions.
        symmetrize: One of :data:`SYMMETRIZATIONS`.
        threshold: The least probability of a link of ``product``; ``grow`` begins with these.
    """
    check_choice("symmetrize", symmetrize, SYMMETRIZATIONS)
    return SYMMETRIZATIONS[symmetrize](posterior, threshold)
