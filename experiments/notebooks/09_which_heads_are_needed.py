# %% [markdown]
# # Which heads are needed, and how certain is that?
#
# A ranking of heads by importance is a point estimate. Here each head of some blocks has a gate, 0
# or 1, which is a latent variable. With H heads there are 2^H subsets of active heads, few enough
# to sum over all of them. So the subset of heads that is needed has an exact posterior, for one
# sentence or for a corpus.
#
# **You learn**
#
# * how to compute the posterior over subsets of heads of a trained language model, with intervals
#   and covariances;
# * what it is for two sentences;
# * how close a guide comes to it;
# * what is lost when heads are removed by this posterior, by the gradient, and at random.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --data python-docs --data.unit.min_count 3 --latents none \
#     --network.width 64 --network.heads 4 --network.layers 2 --train.steps 300 --out runs/plain
# python experiments/run.py --data python-docs --data.unit.min_count 3 --latents bernoulli-heads \
#     --guide mean-field --network.width 64 --network.heads 4 --network.layers 2 \
#     --start runs/plain --train_only guide --out runs/gated
# python experiments/prune.py runs/plain --by posterior
# ```

# %%
import copy
import os

import matplotlib.style
import pandas as pd
import torch

import latentheads as lh
from latentheads import pruning
from latentheads.guides import Exact, MeanField, Tied
from latentheads.models import LanguageModel

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
STEPS, FEW = (2, 2) if SMOKE else (300, 100)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 2}
if not SMOKE:
    SIZES = {"width": 64, "feed_forward": 128, "heads": 4, "layers": 2, "dropout": 0.1}
BLOCKS = "decoder.0.self,decoder.1.self"

# %% [markdown]
# ## A trained network
#
# A small language model is trained on Python's documentation, one sentence at a time. It has no
# latent variables: its attention logits have no noise, and it has no gates.

# %%
corpus = lh.data.PythonDocs(unit=lh.data.WordUnit(min_count=3)).load()
train, valid, test = corpus.train, corpus.valid, corpus.test
if SMOKE:
    train, valid, test = train.first(8), valid.first(4), test.first(4)
model = LanguageModel.of(corpus, latents=(), **SIZES)
options = {"tokens": 1024, "report_every": max(1, STEPS // 4), "quiet": True, "num_samples": 1}
fitted = lh.fit(model, Tied(model), train, valid, steps=STEPS, **options)
pd.DataFrame([{"steps": r["step"], "log p per token": r["valid"]["elbo"]} for r in fitted.history])

# %% [markdown]
# ## The posterior of a corpus
#
# One subset b of the heads of both blocks holds for all sentences D of a corpus: p(b | D) ∝ p(b) Π
# p(y | b)^(1/τ), with a uniform prior p(b). `lh.head_posterior` computes the likelihood of each of
# the 2^8 = 256 subsets; the layers below the lowest block run once. The *inclusion probability* of
# a head is the posterior probability that its gate is 1.
#
# With temperature τ = 1 the posterior has nearly all its probability on one subset: with a hundred
# sentences, differences of a hundredth of a nat per token are decisive. A larger τ counts τ
# sentences as one, which allows for dependent sentences and leaves some uncertainty. It needs no
# second pass. The intervals are 95 % bootstrap intervals over sentences.

# %%
posterior = lh.head_posterior(model, valid, BLOCKS, tau=1)
rows = []
for tau in (1, 10, 100):
    tempered = posterior.with_temperature(tau)
    intervals = tempered.bootstrap()
    for index, (block, head) in enumerate(tempered.heads):
        ends = f"[{intervals.low[index]:.2f}, {intervals.high[index]:.2f}]"
        cell = f"{tempered.inclusion[index]:.2f} {ends}"
        rows.append({"block": block, "head": head, "tau": tau, "inclusion": cell})
pd.DataFrame(rows).pivot(index=["block", "head"], columns="tau", values="inclusion")

# %%
tempered = posterior.with_temperature(30)
table = {f"most probable, {n + 1}": subset for n, subset in enumerate(tempered.most_probable(3))}
table |= {f"smallest within {loss} nats": tempered.smallest_subset(loss) for loss in (0.03, 0.1)}
rows = {}
for name, subset in table.items():
    rows[name] = {block: " ".join(map(str, heads)) for block, heads in subset.heads.items()}
    rows[name] |= {"probability": f"{subset.probability:.3f}", "nats lost": f"{subset.nats:.4f}"}
pd.DataFrame(rows).T

# %% [markdown]
# The table has the active heads of each block at τ = 30, and the nats per token that are lost on
# these sentences. With a uniform prior the order of the subsets is the same for every τ; their
# probabilities are not. "Smallest" is the subset with the fewest heads that loses at most that
# much.
#
# The covariance of two gates shows interactions. It is negative if two heads can replace each
# other: one of them is needed, and it matters less which.

# %%
lh.plot.draw_covariance(tempered, "temperature 30")

# %% [markdown]
# ## The posterior of a sentence
#
# Gates can also be sampled for every sentence. Here the heads of the top block have gates, each
# with prior probability 0.8 of being active. The weights are those of the network above. `lh.terms`
# has the exact posterior.

# %%
gates = lh.latents.BernoulliHeadsOptions("decoder.1.self", rate=0.8)
gated = LanguageModel.of(corpus, latents=[gates], **SIZES)
gated.load_state_dict(model.state_dict(), strict=False)
gated.requires_grad_(False).eval()
batch = next(lh.data.batches(test, 4096, shuffle=False))
terms = lh.terms(gated, Exact(gated), batch)
probabilities = terms.enumeration.log_posterior.exp()
subsets = lh.head_posterior(model, valid, "decoder.1.self", tau=1).subsets  # zeros and ones
inclusion = probabilities @ subsets.float()
entropy = terms.enumeration.entropies()["posterior_entropy"]
two = [int(entropy.argmin()), int(entropy.argmax())]  # the least and the most uncertain
for index in two:
    text = corpus.target.decode(batch.target[index].tolist())
    print(f"posterior entropy {entropy[index]:.2f} nats: {text[:90]}")

# %%
figure = lh.plot.Picture(7.5, 2.8)
names = [str(head) for head in range(subsets.shape[1])]
for axis, index in zip(figure.subplots(1, 2, sharey=True), two):
    axis.bar(names, inclusion[index].numpy())
    axis.axhline(0.8, color="black", linestyle="--", label="prior")
    axis.set_title(f"posterior entropy {entropy[index]:.2f} nats")
    axis.set_xlabel("head of decoder.1.self")
axis.legend()
figure.axes[0].set_ylabel("p(head active | sentence)")
figure.suptitle("Inclusion probabilities of the heads of the top block, for two sentences")
figure

# %% [markdown]
# In the left sentence every inclusion probability is above the prior: all heads are needed. In the
# right one every probability is below it: without some of the heads the sentence is likelier. A
# guide is an amortised posterior of these gates. Its bound and its gap, the KL from the guide to
# the posterior, are exact, because all subsets are summed.

# %%
guide = MeanField(gated, condition_on="target")
learning = {"optimizer": "adamw", "learning_rate": 3e-3, "report_every": FEW, "warmup_steps": 1}
lh.fit(gated, guide, train.first(500), valid.first(50), steps=FEW, **options | learning)
guides = {"tied: the prior": Tied(gated), "mean-field": guide, "exact": Exact(gated)}
reports = {name: lh.evaluate(gated, each, test) for name, each in guides.items()}
figures = ("elbo", "kl", "gap", "exact")
pd.DataFrame({n: {f: getattr(r, f) for f in figures} for n, r in reports.items()}).T.round(4)

# %% [markdown]
# The sentences contain little information about the gates: the KL from posterior to prior is 0.0065
# nats per token. The guide is hardly better than the prior: after 100 steps its gap is 0.0065, that
# of the prior 0.0079.
#
# ## Remove heads
#
# The heads of both blocks are ranked in several ways: by their log-odds in the posterior; by the
# gradient of the loss (Michel et al. 2019), normalised in each block as in the paper; by the same
# without normalisation; and at random. The joint posterior also has a most probable subset of every
# size, which needs no ranking.

# %%
gradients = {
    f"gradient, {'' if normalise else 'not '}normalised": lh.contrib.heads.gradient_importance(
        model, valid, normalise=normalise
    )
    for normalise in (True, False)
}
log_odds = posterior.log_odds.split([block.heads for block in posterior.blocks])
rankings = {"posterior": dict(zip(gradients["gradient, normalised"], log_odds)), **gradients}
heads = pruning.all_heads(model)
rankings |= {f"random {seed}": pruning.random_importance(heads, seed) for seed in range(2)}
total = len(posterior.heads)
numbers = list(range(total, 0, -1))


def loss_of(kept: dict[str, list[int]]) -> float:
    """Nats per token that the network loses on test without the other heads."""
    pruned = copy.deepcopy(model)
    pruning.remove_heads(pruned, kept)
    return whole - lh.evaluate(pruned, Tied(pruned), test).plug_in


def best_subset(size: int) -> dict[str, list[int]]:
    """The most probable subset of a given size."""
    every = posterior.most_probable(2**total)
    return next(subset.heads for subset in every if subset.size == size)


whole = lh.evaluate(model, Tied(model), test).plug_in
curves = {
    name: [loss_of(pruning.most_important(ranking, number)) for number in numbers]
    for name, ranking in rankings.items()
}
curves["most probable subset"] = [loss_of(best_subset(number)) for number in numbers]

# %%
figure = lh.plot.Picture(7.5, 3.6)
axis = figure.subplots()
for name, values in curves.items():
    is_random = name.startswith("random")
    label = {"random 0": "random"}.get(name, "_" if is_random else name)
    axis.plot(numbers, values, "o-", ms=4, color="0.7" if is_random else None, label=label)
axis.invert_xaxis()
axis.set_xlabel("heads left")
axis.set_ylabel("nats per token lost on test")
axis.legend()
figure.suptitle("Loss of log p after heads are removed")
figure

# %%
pd.DataFrame(curves, index=pd.Index(numbers, name="heads left")).round(3)

# %% [markdown]
# With eight heads all rankings are close together, and random removal is not much worse: with half
# of the heads left it loses 0.06 and 0.08 nats, the posterior 0.06. So this network does not show
# an advantage of the posterior as a ranking: the gradient without normalisation is as good. What it
# adds is a probability with an interval, pairs of heads that can replace each other, and the most
# probable subset of every size.
#
# ## Limits
#
# * One seed, one small network, a hundred sentences. Three translation networks with 24 heads, and
#   more rankings: `experiments/results/bernoulli-heads`.
# * The layers above run 2^H times: at most 4,096 subsets, 12 heads.
# * All heads of blocks that are not named are active. Posteriors of single blocks do not show heads
#   of two blocks that can replace each other: name both blocks.
# * There is no right temperature. With τ = 1 the sentences count as independent evidence for one
#   subset, and a hundred of them leave no doubt about heads that lose a hundredth of a nat.
