# %% [markdown]
# # Align the words of two texts
#
# Which word translates which? `lh.align` links the words of two lists of lines, in seconds, with a
# probability for every link. It needs no neural network, no lexicon and no gold links: it is
# trained on the lines themselves. The links of a sentence are a latent variable, a Markov chain
# over source positions (an HMM) that is summed out exactly, in both directions.
#
# **You learn**
#
# * how to align lines;
# * how to read and plot the probability of a link;
# * what a threshold changes;
# * which guides approximate the exact posterior;
# * how to align further lines with a saved aligner.
#
# **The same from the command line:**
#
# ```bash
# python experiments/align.py text.en text.de --out links --scores links.jsonl --keep en-de.aligner
# ```

# %%
import os

import matplotlib.pyplot as plt
import matplotlib.style
import pandas as pd

import latentheads as lh
from latentheads.contrib.plot.word_links import draw_word_links
from latentheads.metrics.alignment import count_links

matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
LINES = 40 if SMOKE else 1500

# %% [markdown]
# ## Two texts with gold links
#
# A grammar translates English-like sentences into `tamir`, an invented language with another word
# order and with endings. Its links are known; they are used for the scores below only. For your own
# texts read the lines of two files instead: line n of one translates line n of the other.

# %%
corpus = lh.data.Grammar(language="tamir", sentences=LINES, held_out=LINES).load()
source = corpus.source_texts(corpus.test)
target = list(corpus.test.references)
gold = corpus.test.links
for index in range(3):
    print(f"{source[index]}\n    {target[index]}")

# %% [markdown]
# ## Links and their probabilities
#
# A link is a pair of word indices, counted from 0: source, target.

# %%
aligned = lh.align(source, target)
aligned.links[0]

# %% [markdown]
# `posteriors` has the probability of every link, in both directions. `product` is their geometric
# mean. Gold links are framed.

# %%
pairs = range(len(source))
longest = max((i for i in pairs if len(source[i].split()) <= 12), key=lambda i: len(source[i]))
draw_word_links(
    aligned.posteriors[longest], source[longest].split(), target[longest].split(), gold[longest]
)


# %% [markdown]
# ## A threshold trades recall for precision
#
# A link is selected if its probability is at least the threshold. *Precision* is the share of
# selected links that are gold, *recall* the share of gold links that are selected. The alignment
# error rate (AER) is 0 if both are 1. The figure shows the errors, 1 − precision and 1 − recall,
# because all are small.


# %%
def score(links: list) -> pd.Series:
    """Precision, recall and AER against the links of the grammar."""
    counts = count_links([set(found) for found in links], gold)
    return pd.Series({"precision": counts.precision, "recall": counts.recall, "AER": counts.aer})


thresholds = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
by_threshold = pd.DataFrame({t: score(aligned.select(threshold=t)) for t in thresholds}).T
errors = pd.DataFrame(
    {
        "1 - precision": 1 - by_threshold["precision"],
        "1 - recall": 1 - by_threshold["recall"],
        "AER": by_threshold["AER"],
    }
)
errors.plot(
    xlabel="threshold: least probability of a link",
    ylabel="error (0 is best)",
    title="Errors of the links, by threshold",
)
plt.show()
by_threshold.round(3)

# %% [markdown]
# ## Symmetrization: how both directions are joined
#
# `forward` and `backward` take the most probable link of each word in one direction. `intersection`
# and `grow-diag-final-and` join these two sets. `product` uses the probabilities: it applies the
# threshold to the geometric mean; `grow` adds likely neighbours of these links.

# %%
kinds = ["forward", "backward", "intersection", "grow-diag-final-and", "product", "grow"]
pd.DataFrame({kind: score(aligned.select(kind)) for kind in kinds}).T.round(3)

# %% [markdown]
# ## Guides of the links
#
# The exact posterior is one of several guides (variational posteriors). All use the same trained
# aligner. `viterbi` is the most probable path, `filtered` is not conditioned on later words,
# `lexical` ignores positions, `tied` is the prior.

# %%
guides = ["exact", "viterbi", "filtered", "lexical", "tied"]
by_guide = {
    name: score(lh.align(source, target, aligner=aligned.aligner, guide=name).links)
    for name in guides
}
pd.DataFrame(by_guide).T.round(3)

# %% [markdown]
# ## Save the aligner
#
# A saved aligner links lines that it was not trained on, without further training.

# %%
lh.contrib.align.save_aligner(aligned.aligner, "en-tamir.aligner")
kept = lh.contrib.align.load_aligner("en-tamir.aligner")
other = corpus.valid
more = lh.align(corpus.source_texts(other), list(other.references), aligner=kept)
print(corpus.source_texts(other)[0])
print(other.references[0])
print(more.links[0])

# %% [markdown]
# ## Limits
#
# The grammar is easier than natural text, where even annotators disagree about links: on the
# English-French Hansards the alignment error rate after 50,000 lines is 5 %. Words are compared by
# their spelling, in lower case. Text without spaces needs another program to segment it, or
# `split="characters"`, which aligns letters. The model ignores the meaning of a sentence: it has
# word translations and positions only.
#
# **More**: [Word alignment](../../docs/align.md) has the model, the error rates on real text beside
# other aligners, and the calibration of links. [What the bound misses](02_exact_gaps.ipynb) has the
# alignment heads of a Transformer.
