# %% [markdown]
# # Gates and selection: which heads are active?
#
# Not every head is needed, and not every language needs the same ones. Here both are random
# variables: a gate that is open or closed, or a choice of heads for each language, each sampled
# once for all sentences there are, with a prior, a posterior and a KL that is counted once.
#
# **You learn** how gates close heads while training; that a closed head can be removed for real,
# with the same outputs to the last digits; how pruning by importance compares with gates; and how
# languages that share one model choose their heads among candidates.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --recipe transformer --train.optimizer adamw \
#     --train.learning_rate 3e-3 --train.warmup_steps 200 --train.steps 400 --out runs/plain
# python experiments/run.py --latents gates --gates.heads 8 --gates.start 2.5 --start runs/plain \
#     --train.optimizer adamw --train.learning_rate 1e-3 --train.warmup_steps 50 \
#     --train.steps 500 --out runs/gated
# python experiments/prune.py runs/gated --by gates
# python experiments/prune.py runs/plain --keep_heads 20,16,12,8
# python experiments/run.py --data.tasks velu,tamir,korin --recipe transformer+subset \
#     --selection.blocks decoder-self --train.optimizer adamw --train.learning_rate 5e-3 \
#     --train.warmup_steps 200 --train.steps 650 --out runs/three
# ```

# %%
import copy
import os

import matplotlib.style
import pandas as pd
import torch

import latentheads as lh

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
STEPS, GATED, CHOOSING = (2, 2, 2) if SMOKE else (400, 500, 650)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}
HEADS = 6 * SIZES["heads"]

# %% [markdown]
# ## Gates
#
# `lh.Settings.from_options` takes the options of the command line, nested by their groups. A plain
# Transformer is trained first, and then again with a Hard Concrete gate on each of its heads. A
# Lagrangian moves the L0 penalty of an open gate until a third of them stay open.

# %%
data = {"sentences": 64 if SMOKE else 4000, "held_out": 8 if SMOKE else 200}
train = {
    "tokens": 512,
    "report_every": 200,
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "warmup_steps": 200,
}
common = {"recipe": "transformer", "data": data, "network": SIZES, "samples": 1}
plain = lh.Settings.from_options({**common, "train": {**train, "steps": STEPS}})
lh.Trainer.of(plain, out="runs/plain", quiet=True).fit()

# %%
gates = {"heads": HEADS // 3, "start": 2.5, "rate": 2e-4}
more = {"steps": GATED, "learning_rate": 1e-3, "warmup_steps": 50}
gated = lh.Settings.from_options(
    {
        **common,
        "latents": "gates",
        "gates": gates,
        "start": "runs/plain",
        "train": {**train, **more},
    }
)
lh.Trainer.of(gated, out="runs/gated", quiet=True).fit()

# %% [markdown]
# The gates are part of the model, so their KL is part of the bound: once for the whole corpus, not
# once a sentence. `selections` in the guide is their posterior.

# %%
run = lh.load_run("runs/gated")
pd.Series(run.results.latents["gates"], name="gates").to_frame()

# %%
lh.plot.gates(run)

# %% [markdown]
# The L0 penalty acts on the mean number of open gates under their noise (*expected*), and after so
# few steps that has not yet come down to what is *wanted*. At test time more are open (*open*):
# some by a crack. What goes and what stays is telling: the encoder's self-attention is all but
# closed, the upper cross-attention is open. On this corpus words are translated one by one, and
# their order changes little.
#
# ## Removal is real
#
# `fold_selection` multiplies what is left of the gates into the output weights; `remove_heads`
# makes the matrices smaller. Nothing about the outputs may change. In double precision it can be
# seen how far that holds:

# %%
part = run.corpus.valid
run.model.double(), run.guide.double()
before = lh.evaluate(run.model, run.guide, part)
small, guide = copy.deepcopy((run.model, run.guide))
folded = lh.pruning.fold_selection(small, guide)
kept = {name: law.mode[0].nonzero().flatten().tolist() for name, law in folded.items()}
lh.pruning.remove_heads(small, kept, guide)
after = lh.evaluate(small, guide, part)
sizes = [sum(p.numel() for p in each.parameters()) for each in (run.model, small)]
print(f"heads {HEADS} -> {sum(map(len, kept.values()))}, parameters {sizes[0]:,} -> {sizes[1]:,}")
print(f"log-likelihood with closed gates: {before.plug_in:.12f} nats per token")
print(f"           without these heads:   {after.plug_in:.12f}")
print(f"           difference:            {abs(before.plug_in - after.plug_in):.0e}")
assert abs(before.plug_in - after.plug_in) < 1e-12

# %% [markdown]
# ## Gates or importance?
#
# The usual way is to rank the heads of a trained network by the gradient of its loss, and to cut
# from below without training again. Chance is a baseline that it has to beat. The *posterior* over
# the subsets of a block's heads ranks them by what subsets do, and needs no training either: all
# subsets of each block are tried, and a corpus shows which of them it needs.

# %%
whole = lh.load_run("runs/plain")
batches = list(lh.batches(whole.corpus.train.first(8 if SMOKE else 500), tokens=2048))
rankings = {"importance": lh.analysis.gradient_importance(whole.model, batches)}
posteriors = lh.head_posteriors(whole.model, batches)
rankings["posterior"] = {name: posterior.log_odds for name, posterior in posteriors.items()}
for seed in (0, 1, 2):
    noise = torch.Generator().manual_seed(seed)
    everything = lh.pruning.all_heads(whole.model).items()
    rankings[f"random {seed}"] = {n: torch.rand(len(h), generator=noise) for n, h in everything}
numbers = [HEADS * share // 12 for share in ((12, 6) if SMOKE else (12, 11, 10, 9, 8, 6, 4))]
curves = {name: [] for name in rankings}
for name, ranking in rankings.items():
    for number in numbers:
        model, guide = copy.deepcopy((whole.model, whole.guide))
        lh.pruning.remove_heads(model, lh.pruning.most_important(ranking, number), guide)
        curves[name].append(lh.evaluate(model, guide, part).elbo)

figure = lh.plot.Picture(7.5, 3.8)
axis = figure.subplots()
for name, values in curves.items():
    style = {"color": {"importance": "C0", "posterior": "C2"}.get(name, "0.6")}
    axis.plot(numbers, values, "o-", label=name.partition(" ")[0], **style)
axis.plot(sum(map(len, kept.values())), after.plug_in, "*", ms=12, color="C1", label="gates")
axis.axhline(after.truth, color="black", linestyle="--", label="true log p")
axis.set_xlabel("heads left")
axis.set_ylabel("nats per target token (validation)")
figure.suptitle("What is left when heads are removed")
handles = dict(zip(*axis.get_legend_handles_labels()[::-1]))
axis.legend(handles.values(), handles.keys())
figure

# %% [markdown]
# Chosen by importance, the first six heads cost a quarter of a nat, and by the posterior less than
# a tenth. Then the network falls apart, since it never learned to do without them, and importance
# is not always ahead of the three random rankings; the posterior is. The star is of the network
# with gates. It had more steps in which to adapt, so this is not a comparison of criteria: it says
# that heads should go while the others can still learn.
#
# ## How sure is that?
#
# With 500 sentences the posterior of a block is one subset. `with_temperature` counts so many
# sentences as one, and a bootstrap over sentences gives each probability an interval.

# %%
tempered = {name: posterior.with_temperature(100) for name, posterior in posteriors.items()}
inclusion = {name: posterior.inclusion for name, posterior in tempered.items()}
width = {name: posterior.bootstrap().width for name, posterior in tempered.items()}
lh.plot.draw_head_posteriors(inclusion, width, "temperature 100")

# %% [markdown]
# ## A choice for each language
#
# Three target languages of different word order share one model. Every block of the decoder's
# self-attention has twice as many heads as it uses, and each language has a posterior over the
# subset that is active for it: which of them are shared is learned. `subset` samples that many;
# its KL against the uniform prior is exact.

# %%
three = lh.Settings.from_options(
    {
        **common,
        "recipe": "transformer+subset",
        "selection": {"blocks": "decoder-self"},
        "data": {**data, "tasks": "velu,tamir,korin"},
        "train": {**train, "steps": CHOOSING, "learning_rate": 5e-3},
    }
)
lh.Trainer.of(three, out="runs/three", quiet=True).fit()

# %%
run = lh.load_run("runs/three")
lh.plot.selection(run)

# %%
sites = {site: kl for site, kl in run.results.kl_by_site.items() if site.endswith(".selection")}
how = {site: run.results.kl_how[site] for site in sites}
tokens = run.results.test.tokens
pd.DataFrame(
    {"KL, nats for all sentences": {n: kl * tokens for n, kl in sites.items()}, "how": how}
)

# %%
columns = ["sentences", "elbo", "truth", "bleu"]
tasks = {name: dict(scores) for name, scores in run.results.tasks.items()}
pd.DataFrame(tasks, index=columns).T

# %% [markdown]
# The KL is small and counted once: the choice of heads is one sample for all sentences there are,
# so it weighs less and less as the corpus grows. After so few steps the posterior has only begun to
# leave its prior: few probabilities are near 0 or 1, the dots are the likeliest choice of something
# that is still open, and two languages share no more in the mean than chance would give them. It
# takes a longer training to see a language make up its mind:
# `experiments/results/grammar-languages`.
#
# ## Limits
#
# * One seed, a small network, a few hundred steps. Which heads stay differs from seed to seed.
#   With more training: `experiments/results/grammar-gates`, `multi30k-gates` and
#   `multi30k-languages`.
# * Removal makes a network smaller and faster, but only the programs measure speed (`prune.py`).
# * The exact equality holds for gates at their test value. Where a prior mixes heads, as a cascade
#   does, the logits of a removed head are still sampled, and less is won.
