# %% [markdown]
# # Write a guide in twenty lines
#
# A guide is q(heads | x, y), the variational posterior that training samples heads from. Here the
# latent variables are the attention *logits* of all heads. At each block Pyro passes the guide the
# prior of that block, with the scores, the logits of the block below and the mask; the guide
# returns a distribution. The network itself runs once per sample, so a bound costs one forward
# pass.
#
# **You learn**
#
# * how to write a guide and train it in Pyro's own idiom;
# * how it compares with the library's guides on the same model;
# * which errors a wrong guide raises;
# * how a guide that is conditioned on the source alone collapses onto the prior, and what free bits
#   change;
# * how the same distribution becomes a prior of your own.
#
# **The same from the command line**, with the classes below in a file `my_guides.py`:
#
# ```bash
# python experiments/run.py --latents logits --guide my_guides:DampedGuide --guide.start 0.3 \
#     --out runs/damped
# python experiments/run.py --latents logits --guide my_guides:DampedGuide --guide.start 0.3 \
#     --loss.free_bits 0.02
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
from latentheads.models import Logits, Prior, Translation

torch.manual_seed(0)
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
SENTENCES, HELD_OUT = (64, 8) if SMOKE else (4000, 200)
IN_MEMORY, STEPS, GUIDE_STEPS = (2, 2, 2) if SMOKE else (100, 400, 150)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 48, "heads": 4}

# %% [markdown]
# ## The guide
#
# The location of a head is its scores plus w times the logits that were sampled one block below.
# The weight w is learned for each head, and so is the scale. A `Family` is a conditional
# distribution of the heads of a block; `NormalHeads` takes a location of shape *sentence, head,
# query, key*. `context.below` is None in the first block of a stack.


# %%
class Damped(Family):
    """Normal logits around the scores plus a weighted sum with the logits below."""

    def __init__(self, heads: int, start: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((heads, 1, 1), start))
        self.log_scale = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, context: lh.models.HeadContext) -> NormalHeads:
        below = 0.0 if context.below is None else context.below
        location = context.scores + self.weight * below
        return NormalHeads(location, context, self.log_scale.exp())


class DampedGuide(Guide):
    """The family `Damped` at every block."""

    def __init__(self, model: lh.models.HeadModel, start: float = 0.0) -> None:
        super().__init__(model)
        self.start = start

    def family(self, block: lh.models.Block) -> Family:
        return Damped(block.heads, self.start)


# %% [markdown]
# ## Training with Pyro's SVI
#
# Model and guide are Pyro's, so `SVI`, `Trace_ELBO` and every optimizer of `pyro.optim` work with
# them.

# %%
corpus = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
model = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES)
guide = DampedGuide(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 3e-3}), Trace_ELBO())
losses = []
for batch in list(lh.data.batches(corpus.train, tokens=512, seed=0))[:IN_MEMORY]:
    loss = svi.step(batch)  # the plate scales it to the corpus
    losses.append(loss * len(batch) / batch.size / float(batch.target_valid.sum()))
print(f"nats per target token: {losses[0]:.2f}, {losses[-1]:.2f} after {len(losses)} steps")

# %%
lh.evaluate(model, guide, corpus.valid, num_samples=2)

# %% [markdown]
# `lh.terms` has the KL of each block. It is computed in closed form (`analytic`) where there is
# one; the guide needs no code for it.

# %%
(batch,) = lh.data.batches(corpus.valid.first(8), tokens=4096, shuffle=False)
model.eval(), guide.eval()
terms = lh.terms(model, guide, batch)
pd.DataFrame({"KL, nats per sentence": {n: float(kl.mean()) for n, kl in terms.kl.items()}}).assign(
    how=terms.how
)

# %% [markdown]
# ## Three guides of one model
#
# `lh.Trainer` adds learning rate schedules, checkpoints and a report. First a model is trained with
# the guide `Tied`, which is the prior itself (q = p). Then the model is frozen, and the two other
# guides are trained.

# %%
plan = {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 200}
options = {"tokens": 512, "report_every": 100, "num_samples": 4, "quiet": True, **plan}
torch.manual_seed(0)
model = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES)
lh.Trainer(model, Tied(model), corpus, steps=STEPS, out="runs/tied", **options).fit()

# %%
model.requires_grad_(False)
guides = {"tied": Tied(model), "damped": DampedGuide(model), "cascaded": Cascaded(model)}
reports = {}
for name, guide in guides.items():
    if list(guide.parameters()):
        more = {**options, "steps": GUIDE_STEPS, "out": f"runs/{name}-of-tied"}
        lh.Trainer(model, guide, corpus, **more).fit()
    reports[name] = dict(lh.evaluate(model, guide, corpus.test, num_samples=4).scores())
pd.DataFrame(reports, index=["elbo", "log_likelihood", "kl", "iwae"]).T.astype(float).round(4)

# %% [markdown]
# The three bounds differ by at most 0.0003 nats per token. Neither trained guide is better than the
# prior: both are conditioned on the source alone, and the model was trained with samples of the
# prior. The learned weight w stays near 0, where it starts.
#
# A run folder has data only, and opening one imports no code. A run with a class of your own is
# opened with `trusted`, which names that class:

# %%
run = lh.load_run("runs/damped-of-tied", trusted="__main__:DampedGuide", corpus=corpus)
{name: round(each.weight.abs().max().item(), 4) for name, each in run.guide.families.items()}

# %% [markdown]
# ## Errors of a wrong guide
#
# The bound of an invalid guide would be a meaningless number. So the trainer computes the bound of
# two sentences before it trains, and `lh.terms` raises the same errors.


# %%
class Tensors(Family):
    """Returns a tensor, not a distribution."""

    def forward(self, context: lh.models.HeadContext) -> torch.Tensor:
        return context.scores


class OneHead(Family):
    """Has one head where the block has several."""

    def forward(self, context: lh.models.HeadContext) -> NormalHeads:
        return NormalHeads(context.scores[..., :1, :, :], context, 1.0)


class PointMass(Family):
    """Puts all probability on one point, where the prior has a density."""

    def forward(self, context: lh.models.HeadContext) -> DeltaHeads:
        return DeltaHeads(context.scores, context)


class Wrong(Guide):
    """A guide of any family without parameters."""

    def __init__(self, model: lh.models.HeadModel, kind: type[Family]) -> None:
        self.kind = kind
        super().__init__(model)

    def family(self, block: lh.models.Block) -> Family:
        return self.kind()


other = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES)
model.eval()
wrong = {kind.__name__: Wrong(model, kind) for kind in (Tensors, OneHead, PointMass)}
for name, guide in {**wrong, "a guide of another model": Tied(other)}.items():
    try:
        lh.terms(model, guide, batch)
    except (TypeError, ValueError) as error:
        print(f"{name}:\n    {error}")

# %% [markdown]
# The requirements of a guide are tests, in `tests/guides/test_conformance.py`. For example: padding
# and the order of a batch change no sentence, saved weights give the same bound, and a query with
# one possible key has a KL of 0. A guide with a line in `GUIDES` is tested there automatically.
#
# ## Posterior collapse
#
# Now model and guide are trained together. The guide starts away from the prior, at w = 0.3. It is
# conditioned on the source alone, as the guide of CODA is (Zheng, Wu and Kong 2021). One run has no
# free bits, the other has 0.02.

# %%
start, steps = 0.3, {"steps": STEPS, "report_every": 1 if SMOKE else 25}
runs = {}
for name, more in {"no-free-bits": {}, "free-bits": {"loss": {"free_bits": 0.02}}}.items():
    torch.manual_seed(0)
    model = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES)
    guide = DampedGuide(model, start=start)
    trainer = lh.Trainer(model, guide, corpus, out=f"runs/{name}", **{**options, **steps, **more})
    trainer.fit()
    runs[name] = lh.load_run(f"runs/{name}", trusted="__main__:DampedGuide", corpus=corpus)
figure = lh.plot.kl_history(runs["no-free-bits"])
figure.suptitle("KL of each block on validation, without free bits")
figure

# %% [markdown]
# The scale is logarithmic. Without free bits the KL of every block falls below 10⁻⁴: the guide
# collapses onto the prior. This is no failure of the optimizer. What the guide can add to the
# scores improves the likelihood by less than its KL. (In the first block of a stack there is no
# block below; there the KL comes from the scale alone.)
#
# With *free bits* the objective ignores the KL of a block up to 0.02 nats per target token. Below
# this threshold the KL has no gradient: the likelihood alone moves the guide. After step 150 the
# curves vary between 2 · 10⁻⁴ and 2 · 10⁻², below the black dashed line:

# %%
figure = lh.plot.kl_history(runs["free-bits"])
figure.suptitle("KL of each block on validation, with free bits (dashed: 0.02)")
figure.axes[0].axhline(0.02, color="black", linestyle="--", linewidth=1)
figure

# %%
scores = {name: run.results.test for name, run in runs.items()}
pd.DataFrame(
    {
        name: {"bound": each.elbo, "log-likelihood": each.log_likelihood, "KL": each.kl}
        for name, each in scores.items()
    }
).T.round(4)

# %% [markdown]
# Free bits keep the KL away from 0, but this does not help. The log-likelihood rises by 0.003 nats
# per token, the KL by 0.050, so the bound is lower by 0.047. A KL above 0 does not show that the
# guide is closer to the posterior. For that it must be conditioned on the target: see
# `02_exact_gaps`.
#
# ## A prior of your own
#
# A `Family` serves as a guide or as a prior. A `Prior` makes one for each block of a model:


# %%
class DampedPrior(Prior):
    """The family `Damped` as the prior of every block."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = start

    def __call__(self, block: lh.models.Block) -> Family:
        return Damped(block.heads, self.start)


# %% [markdown]
# `Logits` is the latent that `lh.latents.LogitsOptions` makes. A model with it is trained with the
# guide `Tied`, and is opened with `trusted` too. Here it copies the parameters of the guide that
# was trained with free bits, and the network copies those of that guide's model.

# %%
run = runs["free-bits"]
model = Translation.of(corpus, latents=[Logits(DampedPrior(start))], layers=2, **SIZES)
model.load_state_dict(run.model.state_dict(), strict=False)  # all but the prior
for block in model.latent_blocks:
    block.prior.load_state_dict(run.guide.families[block.block.key].state_dict())
samples = options["num_samples"]
found = {
    "as a guide": run.evaluate("test", num_samples=samples),
    "as a prior": lh.evaluate(model, Tied(model), corpus.test, num_samples=samples),
}
pd.DataFrame(
    {
        name: {"bound": each.elbo, "log-likelihood": each.log_likelihood, "KL": each.kl}
        for name, each in found.items()
    }
).T.round(4)

# %% [markdown]
# The log-likelihood is the same and the KL is 0, so the bound is higher by the KL of the guide.
# This holds for every guide that is conditioned on the source alone: used as the prior, it gives a
# bound that is at least as high. So where the prior's family contains the guide's, joint training
# ends with the two equal.
#
# ## Limits
#
# * One seed, a small network, a few hundred steps. With three seeds and 3,000 steps guides that are
#   conditioned on the source alone end at their prior too: `experiments/results/grammar-velu`.
# * `DampedGuide` is a guide of logits. A guide of alignments is made by its options
#   (`condition_on`, the form) or by overriding `get_posterior`; see `docs/guides.md`.
# * A class that is defined in a notebook is named `__main__:DampedGuide` in a run folder. Put it in
#   a file if programs are to open the run.
