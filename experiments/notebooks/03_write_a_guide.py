# %% [markdown]
# # Write a guide in twenty lines
#
# A guide is q(heads | x, y), the posterior that training samples heads from. It never runs the
# network. The model runs once; at each block Pyro hands the guide the prior, which carries the
# scores, the logits below and the mask, and takes back a distribution. So a bound costs one pass.
#
# **You learn** how to write a guide and train it in Pyro's own idiom; how it compares with the
# library's guides on one and the same model; what the library says to a guide that is wrong; how a
# posterior that reads the source alone collapses onto its prior, and what free bits do to it; and
# how the same law becomes a prior of your own.
#
# **The same from the command line**, with the classes below in a file `my_guides.py`:
#
# ```bash
# python experiments/run.py --latents logits --guide my_guides:DampedGuide --guide.start 0.3 \
#     --out runs/damped
# python experiments/run.py --latents logits --guide my_guides:DampedGuide --guide.start 0.3 \
#     --train.free_bits 0.02
# python experiments/run.py --latents logits --logits.prior my_guides:DampedPrior --guide tied \
#     --out runs/damped-prior
# ```

# %%
import os

import pandas as pd
import pyro
import torch
from pyro.infer import SVI, Trace_ELBO
from torch import nn

import latentheads as lh
from latentheads.distributions import DeltaHeads, NormalHeads
from latentheads.families import Family
from latentheads.guides import Cascaded, Guide, Tied
from latentheads.models import Prior, Translation

torch.manual_seed(0)
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
SENTENCES, HELD_OUT = (64, 8) if SMOKE else (4000, 200)
IN_MEMORY, STEPS, GUIDE_STEPS = (2, 2, 2) if SMOKE else (100, 400, 150)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 48, "heads": 4}

# %% [markdown]
# ## The guide
#
# Each head trusts its scores, and the logits sampled one block below to a degree that is learned. A
# `Family` is a conditional distribution of the heads of a block; `NormalHeads` takes a location of
# shape *sentence, head, query, key*. `context.below` is None in the first block of a chain.


# %%
class Damped(Family):
    """Each head trusts its scores and the logits below to a learned degree."""

    def __init__(self, heads: int, start: float) -> None:
        super().__init__()
        self.trust = nn.Parameter(torch.full((heads, 1, 1), start))
        self.log_scale = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, context: lh.HeadContext) -> NormalHeads:
        below = 0.0 if context.below is None else context.below
        location = context.scores + self.trust * below
        return NormalHeads(location, context, self.log_scale.exp())


class DampedGuide(Guide):
    """A damped family at every block."""

    def __init__(self, model: lh.HeadModel, start: float = 0.0) -> None:
        super().__init__(model)
        self.start = start

    def family(self, block: lh.Block) -> Family:
        return Damped(block.heads, self.start)


# %% [markdown]
# ## Training it by hand
#
# Model and guide are Pyro's: `SVI`, `Trace_ELBO` and any `pyro.optim` take them as they are.

# %%
corpus = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
model = Translation.of(corpus, prior="independent", layers=2, **SIZES)
guide = DampedGuide(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 3e-3}), Trace_ELBO())
losses = []
for batch in list(lh.batches(corpus.train, tokens=512, seed=0))[:IN_MEMORY]:
    loss = svi.step(batch)  # of the whole corpus: the plate of sentences scales it
    losses.append(loss * len(batch) / batch.size / float(batch.target_valid.sum()))
print(f"nats per target token: {losses[0]:.2f}, {losses[-1]:.2f} after {len(losses)} steps")

# %%
lh.evaluate(model, guide, corpus.valid, samples=2)

# %% [markdown]
# Nothing has to be added for the KL of each block to be known, in closed form where there is one.

# %%
(batch,) = lh.batches(corpus.valid.first(8), tokens=4096)
model.eval(), guide.eval()
terms = lh.terms(model, guide, batch)
pd.DataFrame({"KL, nats per sentence": {n: float(kl.mean()) for n, kl in terms.kl.items()}}).assign(
    how=terms.how
)

# %% [markdown]
# ## Three guides of one model
#
# The trainer does the same with schedules, checkpoints and a report. A model is trained with the
# tied guide first. Then it stays as it is, and each guide bounds it as well as it can.

# %%
plan = {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 200}
options = {"tokens": 512, "report_every": 100, "samples": 4, "quiet": True, **plan}
torch.manual_seed(0)
model = Translation.of(corpus, prior="independent", layers=2, **SIZES)
lh.Trainer(model, Tied(model), corpus, steps=STEPS, out="runs/tied", **options).fit()

# %%
model.requires_grad_(False)
guides = {"tied": Tied(model), "damped": DampedGuide(model), "cascaded": Cascaded(model)}
reports = {}
for name, guide in guides.items():
    if list(guide.parameters()):
        more = {**options, "steps": GUIDE_STEPS, "out": f"runs/{name}-of-tied"}
        lh.Trainer(model, guide, corpus, **more).fit()
    reports[name] = dict(lh.evaluate(model, guide, corpus.test, samples=4).scores())
pd.DataFrame(reports, index=["elbo", "log_likelihood", "kl", "iwae"]).T.astype(float).round(4)

# %% [markdown]
# The three bounds agree to a few ten-thousandths of a nat. Neither guide, both of which read the
# source alone, finds a better law than the prior: the model has learned to live with exactly this
# noise. The trust in the logits below stays near the 0 that it starts at.
#
# A run folder is data, and opening one imports nothing. So whoever loads a run with a class of
# their own says that it is theirs:

# %%
run = lh.load_run("runs/damped-of-tied", trusted="__main__:DampedGuide", corpus=corpus)
{name: round(each.trust.abs().max().item(), 4) for name, each in run.guide.families.items()}

# %% [markdown]
# ## What is said to a guide that is wrong
#
# A wrong guide must not end in a number that looks like a bound. The trainer computes the bound of
# two sentences before it trains; `lh.terms` refuses in the same words.


# %%
class Tensors(Family):
    """Returns a tensor, not a distribution."""

    def forward(self, context: lh.HeadContext) -> torch.Tensor:
        return context.scores


class OneHead(Family):
    """Forgets that there are several heads."""

    def forward(self, context: lh.HeadContext) -> NormalHeads:
        return NormalHeads(context.scores[..., :1, :, :], context, 1.0)


class Certain(Family):
    """Puts all mass on one point, where the prior has a density."""

    def forward(self, context: lh.HeadContext) -> DeltaHeads:
        return DeltaHeads(context.scores, context)


class Wrong(Guide):
    """A guide of any family without parameters."""

    def __init__(self, model: lh.HeadModel, kind: type[Family]) -> None:
        self.kind = kind
        super().__init__(model)

    def family(self, block: lh.Block) -> Family:
        return self.kind()


other = Translation.of(corpus, prior="independent", layers=2, **SIZES)
model.eval()
wrong = {kind.__name__: Wrong(model, kind) for kind in (Tensors, OneHead, Certain)}
for name, guide in {**wrong, "a guide of another model": Tied(other)}.items():
    try:
        lh.terms(model, guide, batch)
    except (TypeError, ValueError) as reason:
        print(f"{name}:\n    {reason}")

# %% [markdown]
# What every guide of the library keeps to stands in `tests/guides/test_conformance.py`: padding,
# order and splitting of a batch change no sentence, saved weights give the same bound, heads
# without a choice of key cost nothing, and so on. A guide in `GUIDES` is tested there without more
# work.
#
# ## Collapse
#
# Now model and guide are trained together, and the guide starts away from its prior: it trusts the
# logits below by 0.3. It reads the source alone, as the published ones do.

# %%
start, steps = 0.3, {"steps": STEPS, "report_every": 1 if SMOKE else 25}
runs = {}
for name, more in {"free": {}, "free-bits": {"free_bits": 0.02}}.items():
    torch.manual_seed(0)
    model = Translation.of(corpus, prior="independent", layers=2, **SIZES)
    guide = DampedGuide(model, start=start)
    trainer = lh.Trainer(model, guide, corpus, out=f"runs/{name}", **{**options, **steps, **more})
    trainer.fit()
    runs[name] = lh.load_run(f"runs/{name}", trusted="__main__:DampedGuide", corpus=corpus)
lh.plot.kl_history(runs["free"])

# %% [markdown]
# Note the scale: the KL of the upper blocks falls by four orders of magnitude and more. That is no
# failure of the optimizer: what the guide may add to the scores is not worth its KL. (In the
# first block of a chain there is nothing below to trust; it pays for its scale alone.)
#
# *Free bits* charge nothing for what a site's KL has below 0.02 nats per target token. They take
# the pressure away and do not push back, so the curves come to rest below 0.02, not at it:

# %%
lh.plot.kl_history(runs["free-bits"])

# %%
scores = {name: run.results.test for name, run in runs.items()}
pd.DataFrame(
    {
        name: {"bound": each.elbo, "log-likelihood": each.log_likelihood, "KL": each.kl}
        for name, each in scores.items()
    }
).T.round(4)

# %% [markdown]
# The KL is kept away from 0, as it should be. Yet nothing is gained: the bound is lower, for the
# likelihood does not make up for what is paid. A KL above 0 is not yet a posterior that knows
# something. For that the guide has to read what it explains, the target: see `02_exact_gaps`.
#
# ## A prior of your own
#
# A family does not know on which side of the bound it stands. A `Prior` makes one for each block of
# a model:


# %%
class DampedPrior(Prior):
    """The damped law as the prior of every block."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = start

    def __call__(self, block: lh.Block) -> Family:
        return Damped(block.heads, self.start)


# %% [markdown]
# It goes where the name of a prior goes, trains with the guide `Tied`, and is `trusted` in the same
# way. Here it takes its numbers over from the guide with free bits, and the network from its model.

# %%
run = runs["free-bits"]
model = Translation.of(corpus, prior=DampedPrior(start), layers=2, **SIZES)
model.load_state_dict(run.model.state_dict(), strict=False)  # all but the prior, which learns now
for block in model.latent_blocks:
    block.prior.load_state_dict(run.guide.families[block.block.key].state_dict())
samples = options["samples"]
found = {
    "as a guide": run.evaluate("test", samples),
    "as a prior": lh.evaluate(model, Tied(model), corpus.test, samples),
}
pd.DataFrame(
    {
        name: {"bound": each.elbo, "log-likelihood": each.log_likelihood, "KL": each.kl}
        for name, each in found.items()
    }
).T.round(4)

# %% [markdown]
# The likelihood is the same, the KL is 0, and so the bound is higher by all that the guide paid.
# That holds of every guide that reads the source alone: its law is never worth less as a prior.
# Where the prior can take the guide's form, training both together therefore ends with the two
# equal.
#
# ## Limits
#
# * One seed, a small network, a few hundred steps. With three seeds and 3,000 steps guides that
#   read the source alone end at their prior too: `experiments/results/grammar-velu`.
# * `DampedGuide` is a guide of logits. A guide of alignments is made by its options
#   (`condition_on`, the form) or by overriding `get_posterior`; see `docs/guides.md`.
# * A class that is defined in a notebook is `__main__:DampedGuide` to a run folder. Put it in a
#   file before the programs are to read the run.
