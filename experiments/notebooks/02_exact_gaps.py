# %% [markdown]
# # What the bound misses
#
# A variational bound lies below log p(y | x). How far below? Usually nobody can say: the true
# posterior is not known. Here it is. One or two heads of *alignments* can be summed out, so log p(y
# | x), the posterior and the gap of every guide are exact, on any text.
#
# **You learn** how to train a model on log p(y | x) itself; how far the bounds of several guides of
# this one model lie below it; what importance weighting wins back; and how to tell whether a guide
# makes any use of the target.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --guide exact --out runs/exact
# python experiments/run.py --guide cascaded --train_only guide --start runs/exact \
#     --out runs/cascaded
# python experiments/analyse.py runs/cascaded
# ```

# %%
import os
import random

import matplotlib.style
import pandas as pd
import torch

import latentheads as lh
from latentheads.guides import Cascaded, Exact, MeanField, Tied
from latentheads.models import Translation

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
SENTENCES, HELD_OUT = (64, 8) if SMOKE else (4000, 100)
STEPS, GUIDE_STEPS = (2, 2) if SMOKE else (400, 200)
SIZES = {"width": 8 if SMOKE else 48, "feed_forward": 8 if SMOKE else 96, "layers": 1}
K = [1, 2] if SMOKE else [1, 4, 16, 64, 256]

# %% [markdown]
# ## A corpus whose truth is known
#
# The grammar samples English-like sentences and their translations into `velu`, an invented
# language. It knows the probability of every translation and which word translates which. Neither
# is shown to the model.

# %%
corpus = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
corpus

# %%
sources = corpus.source_texts(corpus.test)
for source, reference in zip(sources[:3], corpus.test.references):
    print(f"{source}\n    {reference}")

# %% [markdown]
# ## One model
#
# Two blocks of one head each stand above a small Transformer. Each head of a target word samples
# one source position, and adds that word's vector to the state. All heads explain one word, so
# given the word they depend on each other: they collide.
#
# The guide `Exact` is Bayes' rule. Its bound is log p(y | x), and training with it maximises that.

# %%
model = Translation.of(corpus, prior="delta", latents=[lh.AlignmentOptions(blocks=2)], **SIZES)
plan = {"optimizer": "adamw", "learning_rate": 8e-3, "warmup_steps": 200}
options = {"tokens": 512, "report_every": 100, "samples": 1, **plan}
trainer = lh.Trainer(model, Exact(model), corpus, steps=STEPS, out="runs/exact", **options)
trainer.fit()

# %% [markdown]
# Two distances stand in this table, and they should not be mixed up. From *true log p* to *exact
# log p* is what the **model** has not learned in this short training. From *exact log p* to the
# *bound* is the gap of the **guide**: 0 for Bayes' rule.
#
# ## Five guides of it
#
# From here on the model stays as it is, and three guides are trained to bound it. One is told the
# source alone; the two others read the target too, one with both heads independent of each other
# (`mean-field`), one whose upper head sees where the lower one points (`cascaded`). `tied` answers
# with the prior and `exact` with the posterior: both have nothing to learn.
#
# `Autoregressive` is left out: it reads the heads before it *in its block*, and here a block has
# one.

# %%
model.requires_grad_(False)
guides = {
    "tied": Tied(model),
    "cascaded, conditioned on source": Cascaded(model, condition_on="source"),
    "mean-field": MeanField(model),
    "cascaded": Cascaded(model),
    "exact": Exact(model),
}
for name, guide in guides.items():
    if list(guide.parameters()):
        out = f"runs/{name.split(',')[0]}-{guide.condition_on}"
        more = {"steps": GUIDE_STEPS, "out": out, "quiet": True}
        lh.Trainer(model, guide, corpus, **options, **more).fit()

lh.compare(model, guides, corpus, train="none", samples=4)

# %% [markdown]
# `lh.compare` makes such a table in one call; without `train="none"` it trains the guides too, in
# place, and keeps no run folder of them. More samples are more precise:

# %%
reports = {
    name: [lh.evaluate(model, guide, corpus.test, samples=k) for k in K]
    for name, guide in guides.items()
}
columns = {
    "elbo": "bound",
    "iwae": f"IWAE_{K[-1]}",
    "exact": "exact log p",
    "gap": "gap",
    "kl": "KL",
    "effective_sample_size": f"effective samples of {K[-1]}",
    "pareto_k": "k-hat > 0.7",
}
scores = {name: dict(found[-1].scores()) for name, found in reports.items()}
table = pd.DataFrame(scores, index=columns).T.rename(columns=columns)
table.astype(float).round(4)

# %% [markdown]
# Every row bounds one and the same model, so the rows may be compared, and none lies above the
# exact log p. Two pairs tell the story:
#
# * `cascaded, conditioned on source` against `cascaded`: one family. Without the target it hardly
#   gets beyond the prior; conditioned on the word that it explains, it loses a fraction of that.
# * `mean-field` against `cascaded`: both are conditioned on the target, but given the word the two
#   heads depend on each other, and a product of two distributions cannot have that.
#
# The KL is not a measure of quality. The prior pays nothing and has a poor bound; Bayes' rule pays
# what the words have to say of their alignments, and loses nothing.
#
# *k-hat > 0.7* is the share of sentences whose importance weights have too heavy a tail to be
# trusted, by ArviZ's Pareto fit. An IWAE figure can lie a hair above the exact one: it is a lower
# bound on average over its samples, and this is one set of samples.
#
# ## Samples against a better guide

# %%
figure = lh.plot.Picture(7.5, 4.2)
axis = figure.subplots()
colours = ["0.55", "C1", "C0", "C2"]
for (name, found), colour in zip(reports.items(), colours):  # of exact the line is below
    axis.plot(K, [each.iwae for each in found], "o-", color=colour, label=f"{name}: IWAE_K")
    axis.axhline(found[0].elbo, color=colour, linestyle=":", linewidth=1)
axis.axhline(reports["exact"][0].exact, color="black", label="exact log p of the model")
axis.axhline(
    reports["exact"][0].truth, color="black", linestyle="--", label="true log p of the corpus"
)
axis.set_xscale("log", base=2)
axis.set_xticks(K, K)
axis.set_xlabel("K, samples of each sentence (dotted: the bound itself)")
axis.set_ylabel("nats per target token (test)")
figure.suptitle("IWAE: samples close the gap, a better guide needs fewer")
figure.legend(loc="outside lower center", ncols=2)
figure

# %% [markdown]
# Importance weighting lifts every guide towards the same line. A guide that knows the target takes
# fewer samples: at K = 256 the two that do not know the target are still not where `cascaded` is
# at K = 4. Between the black lines no sample helps: that is the model's own distance to the truth.
#
# ## To the last digit
#
# The *gap* is not a difference of two figures. It is computed by itself, as the KL from the guide's
# posterior to the exact one, block by block. In double precision both ways agree to rounding.

# %%
guide = guides["cascaded"]
model.double(), guide.double()
report = lh.evaluate(model, guide, corpus.test)
print("exact log p - bound:", report.exact - report.elbo)
print("gap, by itself:     ", report.gap)
print(f"difference:          {abs(report.exact - report.elbo - report.gap):.0e}")
model.float(), guide.float()
report.gap_by_site

# %% [markdown]
# ## Does a guide read the target?
#
# The guide is told another sentence's target, of the same length, while the model runs on the right
# one. A guide that makes use of the target must lose by it. One that reads the source alone cannot:
# its bound stays the same to the last bit.

# %%
told = {name: lh.shuffled_target(model, guide, corpus.test) for name, guide in guides.items()}
pd.DataFrame(
    {
        name: {"bound": each.elbo, "told another target": each.shuffled, "falls by": each.fall}
        for name, each in told.items()
    }
).T.round(4)

# %% [markdown]
# ## Where the words point
#
# Of the first 64 sentences the one below is that whose words say most of their alignments: the KL
# from its exact posterior to the prior is the largest a word. Left, what the model believes before
# it knows the word; right, given the word; in the middle, the guide, which has to guess what stands
# right.

# %%
run = lh.load_run("runs/cascaded-target", corpus=corpus)
(batch,) = lh.batches(corpus.test.first(64), tokens=64 * 64)
found = lh.terms(model.eval(), guides["exact"].eval(), batch)
place = int(batch.sentences[(found.total_kl / found.tokens).argmax()])
known = {"target": corpus.test.references[place], "links": corpus.test.links[place]}
lh.plot.alignments(run, sources[place], **known)

# %% [markdown]
# The frames are the grammar's own alignment, which nobody showed to the model. Most rows are alike
# and sure before the word is known. In those of *nipit* and *taror* the prior is sure and wrong;
# the guide, told the word, points nearly where Bayes' rule does.
#
# ## Words that are copied
#
# A *copy head* is summed out too: each target word is generated, or it is the word at a position of
# the source. Here are orders of numbers, of two word orders in German.


# %%
def translations(number: int) -> list[tuple[str, str]]:
    """Orders of three numbers, and a translation of each in one of two word orders."""
    numbers = random.Random(0)
    pairs = []
    for _ in range(number):
        giver, taker, item = (str(numbers.randrange(100, 200)) for _ in range(3))
        german = f"{giver} gibt {item} nun {taker}", f"{taker} bekommt {item} nun von {giver}"
        pairs.append((f"{giver} gives {item} to {taker}", numbers.choice(german)))
    return pairs


orders = translations(64 if SMOKE else 2100)
shop = lh.corpora.parallel("orders", orders[:-20], orders[-20:-10], orders[-10:])
copier = Translation.of(shop, prior="delta", latents=[lh.CopyOptions()], **SIZES)
options |= {"loss": "marginal", "out": "runs/copy", "quiet": True}
lh.Trainer(copier, Exact(copier), shop, steps=GUIDE_STEPS, **options).fit()
run = lh.load_run("runs/copy", corpus=shop)
lh.plot.alignments(run, "107 gives 155 to 161", target="161 bekommt 155 nun von 107")

# %% [markdown]
# Before the first word is known, the prior is split between two positions. Given it, the posterior
# is sure where it was copied, and that the German words between were generated.
#
# ## Limits
#
# * One seed, a small network, 400 steps: the figures show what can be measured, not which guide
#   is best. Each guide had 200 steps; its gap is due to its family and to its training.
# * Exact figures need one or two heads of alignments and no other noise. Three heads are refused.
# * The grammar is easy: a translation is nearly a function of its source. On real text more of a
#   word's alignment is open: `experiments/results/alignments`.
# * A guide that is trained *together* with the model changes the model too. Where it reads no
#   target both end at the prior, with a KL of 0. That is a theorem (`docs/alignments.md`), and the
#   next notebook shows it happen.
