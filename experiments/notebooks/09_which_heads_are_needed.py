# %% [markdown]
# # Which heads are needed, and how sure is that?
#
# A ranking of heads by importance is a point estimate. Here the heads of a block have gates, zeros
# and ones, and all subsets of heads are summed over. So "which heads are needed" has an exact
# posterior: of one sentence, or of a corpus.
#
# **You learn** how to compute the posterior over subsets of heads of a trained language model, with
# intervals and covariances; what it says about two sentences; how close a guide comes to it; and
# what is lost when heads are removed by it, by the gradient, and at random.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --data python-docs --data.min_count 3 --latents none \
#     --network.width 64 --network.heads 4 --network.layers 2 --train.steps 300 --out runs/plain
# python experiments/run.py --data python-docs --data.min_count 3 --latents bernoulli-heads \
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
from latentheads.guides import Exact, MeanField, Tied
from latentheads.models import LanguageModel

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
STEPS, FEW = (2, 2) if SMOKE else (300, 100)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 2}
if not SMOKE:
    SIZES = {"width": 64, "feed_forward": 128, "heads": 4, "layers": 2, "dropout": 0.1}
BLOCKS = "decoder.0.self,decoder.1.self"

# %% [markdown]
# ## A trained network
#
# A small language model of Python's own documentation, sentence by sentence. Nothing in it is
# random: its attention logits have no noise, and it has no gates.

# %%
corpus = lh.data.PythonDocs(min_count=3).load()
train, valid, test = corpus.train, corpus.valid, corpus.test
if SMOKE:
    train, valid, test = train.first(8), valid.first(4), test.first(4)
model = LanguageModel.of(corpus, "delta", **SIZES)
options = {"tokens": 1024, "report_every": max(1, STEPS // 4), "quiet": True, "samples": 1}
fitted = lh.fit(model, Tied(model), train, valid, steps=STEPS, **options)
pd.DataFrame([{"steps": r["step"], "log p a token": r["valid"]["elbo"]} for r in fitted.history])

# %% [markdown]
# ## The posterior of a corpus
#
# One subset b of the heads of both blocks holds for all sentences D, and
# p(b | D) ∝ p(b) Π p(y | b)^(1/τ). `lh.head_posterior` computes the likelihood of each of the
# 2^8 = 256 subsets; the layers below the lowest block run once. With τ = 1 a corpus of some size
# leaves one subset. τ counts so many sentences as one, and another τ needs no other pass.

# %%
posterior = lh.head_posterior(model, valid, BLOCKS)
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
most = posterior.most_probable(3)
within = {loss: posterior.smallest_subset(loss) for loss in (0.01, 0.03, 0.1)}
table = {f"most probable, {i + 1}": subset for i, subset in enumerate(most)}
table |= {f"smallest within {loss} nats": subset for loss, subset in within.items()}
pd.DataFrame(
    {name: {"heads": s.heads, "nats lost": round(s.nats, 4)} for name, s in table.items()}
).T

# %% [markdown]
# The intervals are over sentences: they say how far another sample of text could move the answer.
# Two heads with a negative covariance can stand in for each other: one of them is needed, and it
# matters less which.

# %%
lh.plot.draw_covariance(posterior.with_temperature(30), "temperature 30")

# %% [markdown]
# ## The posterior of a sentence
#
# Gates may also be sampled for every sentence: a local latent with prior 0.8 for each head, here of
# the top block. The weights are those of the network above. `lh.terms` has the exact posterior.

# %%
gates = lh.BernoulliHeadsOptions("decoder.1.self", rate=0.8)
gated = LanguageModel.of(corpus, "delta", latents=[gates], **SIZES)
gated.load_state_dict(model.state_dict(), strict=False)
gated.requires_grad_(False).eval()
batch = next(lh.batches(test, 4096))
terms = lh.terms(gated, Exact(gated), batch)
probabilities = terms.enumeration.log_posterior.exp()
subsets = lh.head_posterior(model, valid, "decoder.1.self").subsets  # zeros and ones
inclusion = probabilities @ subsets.float()
entropy = terms.enumeration.entropies()["posterior_entropy"]
two = [int(entropy.argmin()), int(entropy.argmax())]  # the surest sentence, and the least sure
for index in two:
    text = corpus.target.decode(batch.target[index].tolist())
    print(f"posterior entropy {entropy[index]:.2f} nats: {text[:90]}")

# %%
figure = lh.plot.Picture(7.5, 2.8)
names = [f"head {head}" for head in range(subsets.shape[1])]
for axis, index in zip(figure.subplots(1, 2, sharey=True), two):
    axis.bar(names, inclusion[index].numpy())
    axis.axhline(0.8, color="black", linestyle="--", label="prior")
    axis.set_title(f"posterior entropy {entropy[index]:.2f} nats")
axis.legend()
figure.axes[0].set_ylabel("p(head active | sentence)")
figure.suptitle("Which heads of the top block two sentences need")
figure

# %% [markdown]
# The left sentence needs all heads, more than the prior expects. The right one is predicted as well
# without some of them: each probability is below the prior. A guide is an inference network of
# these gates. Its bound and its gap are exact, as the sum over subsets is.

# %%
guide = MeanField(gated, condition_on="target")
learning = {"optimizer": "adamw", "learning_rate": 3e-3, "report_every": FEW, "warmup_steps": 1}
lh.fit(gated, guide, train.first(500), valid.first(50), steps=FEW, **options | learning)
guides = {"tied: the prior": Tied(gated), "mean-field": guide, "exact": Exact(gated)}
reports = {name: lh.evaluate(gated, each, test) for name, each in guides.items()}
figures = ("elbo", "kl", "gap", "exact")
pd.DataFrame({n: {f: getattr(r, f) for f in figures} for n, r in reports.items()}).T.round(4)

# %% [markdown]
# ## Remove heads
#
# The heads of both blocks are ranked by the log-odds of the posterior, by the gradient of the loss
# (Michel et al. 2019), divided by its norm in each block as in the paper and not, and at random.
# The joint posterior needs no ranking: it has a most probable subset of every size.

# %%
gradients = {
    f"gradient, {'' if normalise else 'not '}normalised": lh.analysis.gradient_importance(
        model, valid, normalise=normalise
    )
    for normalise in (True, False)
}
log_odds = posterior.log_odds.split([block.heads for block in posterior.blocks])
rankings = {"posterior": dict(zip(gradients["gradient, normalised"], log_odds)), **gradients}
heads = lh.pruning.all_heads(model)
rankings |= {f"random {seed}": lh.pruning.random_importance(heads, seed) for seed in range(2)}
total = len(posterior.heads)
numbers = list(range(total, 0, -1))


def loss_of(kept: dict[str, list[int]]) -> float:
    """Nats per token that the network loses on test without the other heads."""
    pruned = copy.deepcopy(model)
    lh.pruning.remove_heads(pruned, kept)
    return whole - lh.evaluate(pruned, Tied(pruned), test).plug_in


def best_subset(size: int) -> dict[str, list[int]]:
    """The most probable subset of some heads."""
    every = posterior.most_probable(2**total)
    return next(subset.heads for subset in every if subset.size == size)


whole = lh.evaluate(model, Tied(model), test).plug_in
curves = {
    name: [loss_of(lh.pruning.most_important(ranking, number)) for number in numbers]
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
figure.suptitle("What is lost without heads")
figure

# %%
pd.DataFrame(curves, index=pd.Index(numbers, name="heads left")).round(3)

# %% [markdown]
# With eight heads all informed choices lie close together, and chance is not far. The gradient is
# as good as the posterior where it is not divided by its norm in each block. What only the
# posterior has is the rest: a probability with an interval, pairs that stand in for each other, and
# the best subset of every size.
#
# ## Limits
#
# * One seed, one small network, a hundred sentences. Three networks of translation with 24 heads
#   and more rankings: `experiments/results/bernoulli-heads`.
# * 2^H passes of the layers above: up to 4,096 subsets, 12 heads. A block of more heads has none.
# * All heads of blocks that are not named are active. The posterior of each block alone does not
#   show heads of two blocks that stand in for each other: name both.
# * A temperature has no right value. With τ = 1 the sentences count as independent evidence for one
#   subset, and a hundred of them leave no doubt about heads that lose a hundredth of a nat.
