# %% [markdown]
# # Gates and selection: which heads are active?
#
# Not every head is needed, and different languages may need different heads. Two latent variables
# model this. A *gate* on each head is open or closed. A *selection* chooses a subset of heads for
# each language. Each is sampled once for the whole corpus, not once per sentence, so its KL is
# counted once in the bound.
#
# **You learn**
#
# * how gates close heads during training;
# * that a closed head can be removed from the weight matrices without a change of the outputs;
# * how pruning by importance compares with gates;
# * how languages that share one model select their heads among candidates.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --data.language velu --recipe transformer --train.optimizer adamw \
#     --train.learning_rate 3e-3 --train.warmup_steps 200 --train.steps 400 --out runs/plain
# python experiments/run.py --data.language velu --latents gates --gates.heads 8 \
#     --gates.start 2.5 --start runs/plain --train.optimizer adamw --train.learning_rate 1e-3 \
#     --train.warmup_steps 50 --train.steps 500 --out runs/gated
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
from latentheads import pruning
from latentheads.runs.settings import Settings

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
STEPS, GATED, CHOOSING = (2, 2, 2) if SMOKE else (400, 500, 650)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}
HEADS = 6 * SIZES["heads"]

# %% [markdown]
# ## Gates
#
# `Settings.from_options` takes the options of the command line, nested by their groups. A plain
# Transformer is trained first. Then training continues with a Hard Concrete gate on each head: a
# random variable in [0, 1] that has positive probability at exactly 0 and 1. An L0 penalty is the
# expected number of open gates; its weight, a Lagrange multiplier, is adapted until a third of the
# heads are open.

# %%
grammar = {"sentences": 64 if SMOKE else 4000, "held_out": 8 if SMOKE else 200}
data = {**grammar, "language": "velu"}
train = {
    "tokens": 512,
    "report_every": 200,
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "warmup_steps": 200,
}
common = {"recipe": "transformer", "data": data, "network": SIZES, "num_samples": 1}
plain = Settings.from_options({**common, "train": {**train, "steps": STEPS}})
lh.Trainer.of(plain, out="runs/plain", quiet=True).fit()

# %%
gates = {"heads": {"number": HEADS // 3, "rate": 2e-4}, "start": 2.5}
more = {"steps": GATED, "learning_rate": 1e-3, "warmup_steps": 50}
gated = Settings.from_options(
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
# The gates are part of the model, so their KL is part of the bound: once for the corpus, not once
# per sentence. Their posterior is `selections` of the guide.

# %%
run = lh.load_run("runs/gated")
pd.Series(run.results.latents["gates"], name="gates").to_frame()

# %%
lh.plot.gates(run)

# %% [markdown]
# In the table above, *expected* is the mean number of open gates under their noise, which the L0
# penalty acts on. After so few steps it is still above the *wanted* 8. *open* is the number of
# gates above 0 at test time; several of these 17 are nearly closed, as the figure shows.
#
# The encoder's self-attention is nearly closed, and the upper cross-attention is open. This fits
# the corpus: words are translated one by one, and their order changes little.
#
# ## Closed heads are removed
#
# `fold_selection` multiplies the gates into the output weights; `remove_heads` removes the rows and
# columns of closed heads from the weight matrices. The outputs must not change. In double
# precision:

# %%
part = run.corpus.valid
run.model.double(), run.guide.double()
before = lh.evaluate(run.model, run.guide, part)
small, guide = copy.deepcopy((run.model, run.guide))
folded = pruning.fold_selection(small, guide)
kept = {name: gate.mode[0].nonzero().flatten().tolist() for name, gate in folded.items()}
pruning.remove_heads(small, kept, guide)
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
# The usual way to prune is to rank the heads of a trained network by the gradient of its loss, and
# to remove the lowest ones without further training. Random rankings are the baseline. The third
# ranking is a posterior: every subset of the heads of a block has a likelihood on the corpus, so it
# has an exact posterior probability. A head is ranked by its log-odds of being in the subset. This
# needs no training either.

# %%
whole = lh.load_run("runs/plain")
batches = list(
    lh.data.batches(whole.corpus.train.first(8 if SMOKE else 500), tokens=2048, shuffle=False)
)
rankings = {"importance": lh.contrib.heads.gradient_importance(whole.model, batches)}
posteriors = {
    name: lh.head_posterior(whole.model, batches, name, tau=1, quiet=True)
    for name in pruning.all_heads(whole.model)
}
rankings["posterior"] = {name: posterior.log_odds for name, posterior in posteriors.items()}
for seed in (0, 1, 2):
    noise = torch.Generator().manual_seed(seed)
    everything = pruning.all_heads(whole.model).items()
    rankings[f"random {seed}"] = {n: torch.rand(len(h), generator=noise) for n, h in everything}
numbers = [HEADS * share // 12 for share in ((12, 6) if SMOKE else (12, 11, 10, 9, 8, 6, 4))]
curves = {name: [] for name in rankings}
for name, ranking in rankings.items():
    for number in numbers:
        model, guide = copy.deepcopy((whole.model, whole.guide))
        pruning.remove_heads(model, pruning.most_important(ranking, number), guide)
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
figure.suptitle("log p(y | x) after heads are removed, by ranking")
handles = dict(zip(*axis.get_legend_handles_labels()[::-1]))
axis.legend(handles.values(), handles.keys())
figure

# %% [markdown]
# Ranked by importance, the first six heads cost 0.31 nats and the first twelve 1.54; ranked by the
# posterior, 0.06 and 0.25. Log p falls because the network was not trained without these heads.
# Importance is not better than each of the three random rankings at 22, 20 and 8 heads; the
# posterior is at every number.
#
# The star is the network with gates. It was trained for more steps with the gates, so this is not a
# comparison of criteria: it shows the value of removing heads while the others can still adapt.
#
# ## How certain is the posterior?
#
# With 500 sentences the posterior of a block has nearly all its probability on one subset. This
# certainty is too high if sentences are not independent evidence. `with_temperature(100)` counts
# 100 sentences as one. A bootstrap over sentences gives each probability an interval.

# %%
tempered = {name: posterior.with_temperature(100) for name, posterior in posteriors.items()}
lh.plot.draw_head_posteriors(tempered, title="temperature 100")

# %% [markdown]
# ## A selection for each language
#
# Three target languages of different word order share one model. Each decoder self-attention block
# has twice as many candidate heads as active heads. Each language has a posterior over the subset
# that is active for it, so which heads are shared is learned. The strategy `subset` samples subsets
# of fixed size; its KL against the uniform prior is exact.

# %%
three = Settings.from_options(
    {
        **common,
        "recipe": "transformer+subset",
        "selection": {"blocks": "decoder-self"},
        "data": {**grammar, "tasks": "velu,tamir,korin"},
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
# The KL is small and counted once: the selection is one sample for all sentences, so its KL per
# token falls as the corpus grows. After so few steps the posterior is close to its prior. In the
# figure few probabilities are near 0 or 1; a dot marks the most probable subset, which is still
# uncertain. Two languages share 0.54 of their heads on average, by chance 0.50. Longer training:
# `experiments/results/grammar-languages`.
#
# ## Limits
#
# * One seed, a small network, a few hundred steps. Which heads stay differs from seed to seed. With
#   more training: `experiments/results/grammar-gates`, `multi30k-gates` and `multi30k-languages`.
# * Removal makes a network smaller and faster, but only the programs measure speed (`prune.py`).
# * The exact equality holds for gates at their test value. If a prior mixes heads, as a cascade
#   does, the logits of a removed head are still sampled, and less is saved.
