# %% [markdown]
# # Align the words of two texts
#
# Which word translates which? `lh.align` answers for two lists of lines, in seconds, with a
# probability for every link. It needs no network, no dictionary and no gold links: it trains on
# the lines themselves. All links of a sentence are one random variable, a Markov chain that is
# summed exactly, in both directions.
#
# **You learn** how to align lines, how to read and draw the probability of a link, what a threshold
# changes, how far the probabilities can be trusted, and how to align further lines with a kept
# aligner.
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
from latentheads.metrics.alignment import count_links
from latentheads.plot.word_links import draw_word_links

matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
LINES = 40 if SMOKE else 1500

# %% [markdown]
# ## Two texts whose links are known
#
# The grammar translates English-like sentences into `tamir`, an invented language with another word
# order and with endings. It knows the links, which serve for nothing but the scores below. Of your
# own texts, read the lines of two files instead; line n of one translates line n of the other.

# %%
corpus = lh.data.Grammar(language="tamir", sentences=LINES, held_out=LINES).load()
source = corpus.source_texts(corpus.test)
target = list(corpus.test.references)
gold = corpus.test.links
for index in range(3):
    print(f"{source[index]}\n    {target[index]}")

# %% [markdown]
# ## Links and their probabilities

# %%
aligned = lh.align(source, target)
aligned.links[0]

# %% [markdown]
# `posteriors` has the probability of every link, in both directions; their geometric mean is
# `product`. Below, a column is a source word and a row a target word. Links of the grammar are
# framed.

# %%
pairs = range(len(source))
longest = max((i for i in pairs if len(source[i].split()) <= 12), key=lambda i: len(source[i]))
draw_word_links(
    aligned.posteriors[longest], source[longest].split(), target[longest].split(), gold[longest]
)


# %% [markdown]
# ## A threshold trades recall for precision
#
# A link is kept if its probability is at least the threshold. The alignment error rate (AER) is 0
# if all links are right and none is missing.


# %%
def score(links: list) -> pd.Series:
    """Precision, recall and AER against the links of the grammar."""
    counts = count_links([set(found) for found in links], gold)
    return pd.Series({"precision": counts.precision, "recall": counts.recall, "AER": counts.aer})


thresholds = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
by_threshold = pd.DataFrame({t: score(aligned.select(threshold=t)) for t in thresholds}).T
by_threshold.plot(xlabel="least probability of a link", title="Links against those of the grammar")
plt.show()
by_threshold.round(3)

# %% [markdown]
# ## How both directions are joined
#
# `product` needs probabilities. The others take the likeliest link of each word.

# %%
kinds = ["forward", "backward", "intersection", "grow-diag-final-and", "product"]
pd.DataFrame({kind: score(aligned.select(kind)) for kind in kinds}).T.round(3)

# %% [markdown]
# ## Guides of the links
#
# The exact posterior is one of several guides. Each has the same aligner and other links:
# `filtered` has not seen the words after a word, `lexical` ignores positions, `tied` is the prior.

# %%
guides = ["exact", "viterbi", "filtered", "lexical", "tied"]
by_guide = {
    name: score(lh.align(source, target, aligner=aligned.aligner, guide=name).links)
    for name in guides
}
pd.DataFrame(by_guide).T.round(3)

# %% [markdown]
# ## Keep the aligner
#
# A kept aligner links lines that it has never seen, without training.

# %%
lh.save_aligner("en-tamir.aligner", aligned.aligner)
kept = lh.load_aligner("en-tamir.aligner")
other = corpus.valid
more = lh.align(corpus.source_texts(other), list(other.references), aligner=kept)
print(corpus.source_texts(other)[0])
print(other.references[0])
print(more.links[0])

# %% [markdown]
# ## Limits
#
# The grammar is easier than people's texts: there a link is a matter of opinion, and the error rate
# after 50,000 lines is 6 %. Words are matched as they are written, in any case; a language without
# spaces needs another program to find its words. The links of a word do not depend on the meaning
# of its sentence.
#
# **More**: [Word alignment](../../docs/align.md) has the model, the error rates on real text beside
# other aligners, and the calibration of links. [What the bound misses](02_exact_gaps.ipynb) has the
# alignment heads of a Transformer.
