# %% [markdown]
# # An attention head as a random variable
#
# In a Transformer an attention head is a deterministic function of the sentence. Here its attention
# logits are a random variable, sampled at a `pyro.sample` site. So a head has a prior, a posterior,
# a KL divergence and an uncertainty. This notebook has *latent logits*, as in CODA (Zheng, Wu and
# Kong 2021); *alignment heads*, the default latent of the library, come in `02_exact_gaps`.
#
# **You learn**
#
# * how to make and train a translation model with latent heads;
# * which sample sites it has;
# * what the bound, IWAE and the plug-in network are, and why the last of them is no bound;
# * what a run folder contains;
# * how much the attention of a head varies over samples;
# * why the KL of CODA is exactly 0 in every sample.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --recipe coda --verbose --out runs/coda
# python experiments/analyse.py runs/coda --num_samples 8
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
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
SENTENCES, HELD_OUT = (64, 8) if SMOKE else (4000, 200)
STEPS, DRAWS = (2, 2) if SMOKE else (800, 200)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}

# %% [markdown]
# ## A model in three lines
#
# The corpus is sampled from a grammar: English-like sentences and their translations into `velu`,
# an invented language. So the true probability of each translation and its word alignment are
# known. They are used to evaluate a model, not to train it.
#
# `LogitsOptions("cascaded")` has the prior of CODA. The logits of a block are the sum of the
# scores Q Kᵀ/√d, the logits sampled one block below, a small network of these, and N(0, 1) noise.
# The guide `Tied` is the prior itself (q = p).

# %%
corpus = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
model = Translation.of(corpus, latents=[lh.latents.LogitsOptions("cascaded")], layers=2, **SIZES)
guide = Tied(model)
corpus

# %% [markdown]
# Model and guide are Pyro programs, so Pyro's handlers work. A trace lists the sample sites: for
# each block a tensor of logits of shape *sentence, head, query, key*, and the observed target.

# %%
(batch,) = lh.data.batches(corpus.test.first(8), tokens=4096, shuffle=False)
trace = pyro.poutine.trace(model).get_trace(batch)
pd.DataFrame(
    [
        {
            "site": name,
            "distribution": type(site["fn"]).__name__,
            "shape": tuple(site["value"].shape),
        }
        for name, site in trace.nodes.items()
        if site["type"] == "sample" and name != "sentences"
    ]
)

# %% [markdown]
# ## Training
#
# The trainer runs stochastic variational inference: one sample of all heads per step, with
# reparameterised gradients. Its loss `Head_ELBO` is a `Trace_ELBO`; `03_write_a_guide` uses Pyro's
# own.

# %%
plan = {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 200}
options = {"steps": STEPS, "tokens": 512, "report_every": 200, "num_samples": 2 if SMOKE else 32}
trainer = lh.Trainer(model, guide, corpus, out="runs/coda", **plan, **options)
trainer.fit()

# %% [markdown]
# The report has three figures for log p(y | x), in nats per target token:
#
# * The *bound* (ELBO) and *IWAE*, the importance-weighted bound of several samples, are lower
#   bounds of log p(y | x) of this model, in expectation over their samples.
# * The *plug-in* figure is the exact log-likelihood of another network, in which each head is set
#   to the location of its prior, without noise. Papers on such models often print it, and the
#   perplexity computed from it, because it needs one pass. It is not a bound: it can lie above or
#   below log p(y | x) of the model.
#
# `lh.terms` has the bound of a few sentences site by site, and how each KL was computed.

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
# A run folder has everything of a training run: options, vocabularies, weights, figures and
# translations. It has data only, so opening it runs no code of the run. `run.results` is the report
# above, `run.metrics` the metrics logged during training.

# %%
run = lh.load_run("runs/coda", corpus=corpus)
print(run)
print(*sorted(file.name for file in run.path.rglob("[!.]*.*")), sep=", ")
lh.plot.bound(run)

# %% [markdown]
# ## How much does a head vary?
#
# The heads of the upper cross-attention are sampled many times for one sentence. Left: the mean
# weight. Middle: its standard deviation over the samples. Right: the row that varies most; blue
# bars are means, orange lines span the 10th to the 90th percentile. A row is labelled with the word
# before the one it predicts. The source word of the gold alignment is framed, and grey on the
# right.

# %%
sources = corpus.source_texts(corpus.test)
place = min(range(len(sources)), key=lambda n: abs(len(sources[n].split()) - 8))
known = {"target": corpus.test.references[place], "links": corpus.test.links[place]}
lh.plot.heads(run, sources[place], num_samples=DRAWS, **known)

# %% [markdown]
# Each block adds the same noise, N(0, 1), to the logits; an upper block also has the noise of the
# logits below. But the effect on a weight differs. If one score is much larger than the others, the
# head attends to the same word in every sample. If two scores are close, the weights vary between
# these two words.
#
# `lh.contrib.heads.sample_weights` has these numbers for all blocks. Here: the largest mean weight
# of a row, and the standard deviation of that weight, averaged over rows.

# %%
pair = run.read_sentence(sources[place], known["target"])
sampled = lh.contrib.heads.sample_weights(run.model, run.guide, pair, num_samples=DRAWS)
rows = {}
for name, each in sampled.items():
    best = each.mean.argmax(-1, keepdim=True)
    rows[name] = {
        "largest weight": float(each.mean.gather(-1, best).mean()),
        "standard deviation": float(each.deviation.gather(-1, best).mean()),
    }
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# ## How much do translations vary?
#
# A translation can be sampled too: the heads are sampled, then the words are decoded greedily. Each
# short sentence of the test part is translated with several samples of the heads.

# %%
short = [n for n, source in enumerate(sources) if len(source.split()) < 10]
short = short[: 2 if SMOKE else 60]
sampled = run.translate([sources[n] for n in short], num_return_sequences=2 if SMOKE else 8)
found = dict(zip(short, map(Counter, sampled)))
sure = sum(len(each) == 1 for each in found.values())
print(f"{sure} of {len(short)} sentences have the same translation in all samples.")
print("The sentence with most translations:")
unsure = max(short, key=lambda n: len(found[n]))
print(sources[unsure])
for translation, times in found[unsure].most_common():
    right = "(right)" if translation == corpus.test.references[unsure] else ""
    print(f"{times:>4} x {translation} {right}")

# %% [markdown]
# ## Why the KL of CODA is 0
#
# In the table of sites above every KL is 0, and it was 0 before training. This is not posterior
# collapse: prior and guide are the same object, so log p(z) − log q(z) is 0 for every single
# sample, not only in expectation. Training maximises the expected log-likelihood under the noise.
#
# A guide with a distribution of its own has a nonzero KL, and its log-ratio varies from sample to
# sample. Example: the guide `Cascaded` with the prior N(scores, 1).

# %%
independent = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES).eval()
cascaded = Cascaded(independent, scale=0.9).eval()
few = 2 if SMOKE else 5
pd.DataFrame(
    {
        "CODA: log p(z) - log q(z)": [
            float(lh.terms(model, guide, batch).log_ratio.sum()) for _ in range(few)
        ],
        "independent prior, guide cascaded": [
            float(lh.terms(independent, cascaded, batch).log_ratio.sum()) for _ in range(few)
        ],
    },
    index=pd.RangeIndex(few, name="sample"),
).round(2)

# %% [markdown]
# The pair on the right is not trained: only the variation of its figures matters here, not their
# size. Their expectation is minus the KL, which `lh.terms` has in closed form (`how` is "analytic"
# there).
#
# ## Limits
#
# * One seed, a small network and a short training: no figure here ranks recipes. For three seeds
#   see `experiments/results/grammar-velu`.
# * The guide is the prior, so the bars show the noise of training. They are not a posterior over
#   alignments given the translation. Alignment heads have one: see `02_exact_gaps`.
# * Attention need not be alignment. On this corpus the upper cross-attention is close to it.
