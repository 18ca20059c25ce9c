# %% [markdown]
# # A head is a random variable
#
# In a Transformer an attention head is a function: the same sentence gives the same weights. Here
# it is a random variable. Its logits are sampled at a `pyro.sample` site, so a head has a prior, a
# posterior, a KL and an uncertainty, as everything else in a probabilistic program does.
#
# **You learn** how a translation model with random heads is made and trained; which sample sites it
# has; what the bound, IWAE and the "plug-in" network are, and why only two of them bound anything;
# what a run folder holds; how far a head's attention varies over samples; and why the KL of CODA is
# exactly 0 in every sample.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --recipe coda --verbose --out runs/coda
# python experiments/analyse.py runs/coda --draws 8
# ```

# %%
import os
from collections import Counter

import pandas as pd
import pyro
import torch

import latentheads as lh
from latentheads.guides import Cascaded, Tied
from latentheads.models import Translation

torch.manual_seed(0)
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
SENTENCES, HELD_OUT = (64, 8) if SMOKE else (4000, 200)
STEPS, DRAWS = (2, 2) if SMOKE else (800, 200)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}

# %% [markdown]
# ## A model in three lines
#
# The corpus is sampled from a grammar: English-like sentences and their translations into `velu`,
# an invented language. The probability of every translation and its word alignment are known, which
# helps to judge a model, and are not shown to it.
#
# `prior="cascaded"` is the prior of CODA (Zheng, Wu and Kong 2021): the logits of a block are the
# scores Q Kᵀ/√d, plus the logits sampled one block below, plus a small network of these, plus N(0,
# 1) noise. The guide `Tied` answers with the prior itself.

# %%
corpus = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
model = Translation.of(corpus, prior="cascaded", layers=2, **SIZES)
guide = Tied(model)
corpus

# %% [markdown]
# It is a Pyro model, so Pyro's tools work. A trace shows what is sampled: a tensor of logits for
# each block, with a place for every sentence, head, query and key, and the observed target.

# %%
(batch,) = lh.batches(corpus.test.first(8), tokens=4096)
trace = pyro.poutine.trace(model).get_trace(batch)
pd.DataFrame(
    [
        {"site": name, "law": type(site["fn"]).__name__, "shape": tuple(site["value"].shape)}
        for name, site in trace.nodes.items()
        if site["type"] == "sample" and name != "sentences"
    ]
)

# %% [markdown]
# ## Training
#
# The trainer runs stochastic variational inference: one sample of all heads a step, gradients by
# reparameterisation. `Head_ELBO` is a `Trace_ELBO`; the next notebook but one does it by hand.

# %%
plan = {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 200}
options = {"steps": STEPS, "tokens": 512, "report_every": 200, "samples": 2 if SMOKE else 32}
trainer = lh.Trainer(model, guide, corpus, out="runs/coda", **plan, **options)
trainer.fit()

# %% [markdown]
# Read the last column. The *bound* and *IWAE* lie below log p(y | x) of this model, on average over
# their samples. The *plug-in* figure is the exact likelihood of another network, whose heads stand
# at their prior's location without noise. Most papers on such models print it, and the perplexity
# made of it, because it costs one pass. It bounds nothing: it may lie above log p of the model or
# below.
#
# `lh.terms` has the bound of a few sentences, site by site, and says how each KL was computed.

# %%
model.eval(), guide.eval()
terms = lh.terms(model, guide, batch)
rows = {site: {"KL": float(kl.sum()), "how": terms.how[site]} for site, kl in terms.kl.items()}
print(
    f"log p(y | heads, x) of {len(batch)} sentences: {float(terms.log_likelihood.sum()):.2f} nats"
)
pd.DataFrame(rows).T

# %% [markdown]
# ## The run folder
#
# All of a training stands in one folder: options, vocabularies, weights, figures, translations. It
# is data, and opening it runs nothing. So a run may be read another day, by somebody else or by
# the programs. `run.results` has the table above, `run.metrics` what was noted on the way.

# %%
run = lh.load_run("runs/coda", corpus=corpus)
print(run)
print(*sorted(file.name for file in run.path.rglob("[!.]*.*")), sep=", ")
lh.plot.bound(run)

# %% [markdown]
# ## How sure is a head?
#
# Sample the heads of the upper cross-attention many times on one sentence. Left, the mean weight of
# each head; in the middle, its standard deviation over the samples; right, the row that varies
# most, as bars with a band that holds 80 % of the samples. The row of a word predicts the *next*
# one; its true source word is framed, and grey in the row.

# %%
sources = corpus.source_texts(corpus.test)
place = min(range(len(sources)), key=lambda n: abs(len(sources[n].split()) - 8))
known = {"target": corpus.test.references[place], "links": corpus.test.links[place]}
lh.plot.heads(run, sources[place], draws=DRAWS, **known)

# %% [markdown]
# The noise on the logits is the same everywhere, N(0, 1); what it does to a weight is not. Where
# one score stands far above the others a head points at one word in every sample. Where two are
# close the weights waver between them, often between the true word and one of the same kind.
#
# `lh.analysis.sample_weights` has the numbers of all blocks: here the mean of the largest weight of
# a row, and how much it varies.

# %%
pair = run.read_sentence(sources[place], known["target"])
sampled = lh.analysis.sample_weights(run.model, run.guide, pair, draws=DRAWS)
rows = {}
for name, each in sampled.items():
    best = each.mean.argmax(-1, keepdim=True)
    rows[name] = {
        "largest weight": float(each.mean.gather(-1, best).mean()),
        "its standard deviation": float(each.deviation.gather(-1, best).mean()),
    }
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# ## Does it change what is written?
#
# A translation can be sampled too: heads first, then the words, greedily. Each short sentence of
# the test part is translated under several samples.

# %%
short = [n for n, source in enumerate(sources) if len(source.split()) < 10]
short = short[: 2 if SMOKE else 60]
sampled = run.translate([sources[n] for n in short], number=2 if SMOKE else 8)
found = dict(zip(short, map(Counter, sampled)))
sure = sum(len(each) == 1 for each in found.values())
print(f"{sure} of {len(short)} sentences have one translation in all samples; the least sure:")
unsure = max(short, key=lambda n: len(found[n]))
print(sources[unsure])
for translation, times in found[unsure].most_common():
    right = "(right)" if translation == corpus.test.references[unsure] else ""
    print(f"{times:>4} x {translation} {right}")

# %% [markdown]
# ## Why the KL of CODA is 0
#
# In every row of the table of sites the KL is 0, and was so before training. No posterior has
# collapsed: prior and guide are one object, so log p(z) − log q(z) is 0 in each single sample, not
# on average. What is trained is the expected likelihood under noise.
#
# A guide with a law of its own is another matter. `Cascaded` against the prior N(scores, 1) pays
# for its cascade, and the log-ratio varies from sample to sample.

# %%
independent = Translation.of(corpus, prior="independent", layers=2, **SIZES).eval()
paying = Cascaded(independent, scale=0.9).eval()
few = 2 if SMOKE else 5
pd.DataFrame(
    {
        "CODA: log p(z) - log q(z)": [
            float(lh.terms(model, guide, batch).log_ratio.sum()) for _ in range(few)
        ],
        "independent prior, guide cascaded": [
            float(lh.terms(independent, paying, batch).log_ratio.sum()) for _ in range(few)
        ],
    }
).round(2)

# %% [markdown]
# The pair on the right is not trained, so read that its figures vary, not how large they are. Their
# mean over many samples is minus the KL, which `lh.terms` has in closed form (`how` is "analytic"
# there).
#
# ## Limits
#
# * One seed, a small network and a short training: no figure here ranks recipes. For that see
#   `experiments/results/grammar-velu`, with three seeds.
# * The guide is the prior, so the bands show the noise that the network was trained under. They are
#   no belief about where it should look, given the translation. Alignments have such a posterior:
#   the next notebook.
# * Attention need not be alignment. On this corpus the upper cross-attention comes close to it.
