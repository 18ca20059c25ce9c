# %% [markdown]
# # Which heads does a task need?
#
# The heads that a task needs are called its circuit. Here the circuit is a set of heads with a
# *probability*. A small network is trained in this notebook with six of its eight heads switched
# off. So the truth is known: the task needs the two other heads. Then all heads are switched on
# again, and the two have to be found. At the end the same calls are made for SmolLM2, a language
# model that people use. For this part get it once, from a clone:
#
# ```bash
# python -m pip install gguf
# python experiments/studies/prepare.py smollm2
# ```
#
# **You learn**
#
# * how to switch off heads of a network of `transformers`, and what can stand in for them;
# * how to compute the posterior over all subsets of heads, and how to choose its options;
# * which heads act together;
# * how to sample subsets of more heads than a table holds, and how close a guide comes.
#
# **The same from the command line**, for one layer of SmolLM2 and three tasks:
#
# ```bash
# python experiments/studies/head_circuits.py tables data/smollm2 --layers 29
# ```

# %%
import os
import warnings
from pathlib import Path

import matplotlib.style
import pandas as pd
import torch
import transformers

import latentheads as lh
from latentheads.contrib import circuits
from latentheads.contrib.heads import Counterfactual, Mean, Zero

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
transformers.utils.logging.disable_progress_bar()
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
STEPS, PROMPTS, RESAMPLES, FEW = (2, 8, 2, 2) if SMOKE else (600, 64, 20, 150)
SMOLLM2 = Path(lh.__file__).parents[1] / "data" / "smollm2"

# %% [markdown]
# ## A network whose circuit is known
#
# A prompt is five letters and two questions. A question names a position. The answer is the later
# of the two letters in the alphabet. Letters are the tokens 0 to 11, questions 12 to 16. The head
# of layer 0 that is on brings letters to questions, that of layer 1 brings both together.

# %%
LETTERS, LENGTH, LAYERS, HEADS = 12, 5, 2, 4
config = transformers.GPT2Config(
    vocab_size=LETTERS + LENGTH,
    n_positions=LENGTH + 2,
    n_embd=32,
    n_layer=LAYERS,
    n_head=HEADS,
    bos_token_id=0,
    eos_token_id=0,
)
network = transformers.GPT2LMHeadModel(config).eval()  # without dropout
planted = [(0, 1), (1, 2)]
every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
others = [head for head in every if head not in planted]


def sample(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts and their answers."""
    letters = torch.randint(LETTERS, (number, LENGTH))
    positions = torch.randint(LENGTH, (number, 2))
    return torch.cat([letters, LETTERS + positions], 1), letters.gather(1, positions).amax(1)


def accuracy(off: list[tuple[int, int]]) -> float:
    """The share of 500 prompts that are answered with some heads off."""
    tokens, answers = sample(500)
    with torch.no_grad(), lh.heads(network).off(off):
        predicted = network(input_ids=tokens).logits[:, -1].argmax(-1)
    return float((predicted == answers).double().mean())


optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.0)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
with lh.heads(network).off(others):
    for _ in range(STEPS):
        tokens, answers = sample(64)
        loss = torch.nn.functional.cross_entropy(network(input_ids=tokens).logits[:, -1], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
network.requires_grad_(False)
cases = {"six heads off": others, "all on": [], "the two off": planted}
cases |= {f"six and L{layer}H{head} off": [*others, (layer, head)] for layer, head in planted}
pd.Series({name: accuracy(off) for name, off in cases.items()}, name="accuracy").to_frame()

# %% [markdown]
# ## The posterior over subsets
#
# For each of the 2^8 = 256 subsets of heads: how well does the network predict with these heads
# alone what the whole network predicts? Three choices belong to the answer, and a result names
# them:
#
# * *What stands in for a head that is off*: zeros, its mean over prompts (`Mean`), or its output on
#   a paired prompt (`Counterfactual`).
# * *The penalty* of a head, here .01 nats a prompt. With no penalty every head is needed, since
#   no subset predicts better than all heads.
# * *The temperature*. `calibrate` splits the prompts and takes the temperature whose probabilities
#   best predict which heads the held-out prompts need.
#
# The layers below the heads run once.

# %%
tokens, _ = sample(PROMPTS)
paired = tokens.clone()
paired[:, :LENGTH] = (paired[:, :LENGTH] + 5) % LETTERS  # the same questions about other letters
prompts = circuits.Prompts.of(tokens.tolist())
interventions = {
    "zero": Zero(),
    "mean": Mean(network, prompts.inputs),
    "counterfactual": Counterfactual(network, {"input_ids": paired}),
}
posteriors, calibrations = {}, {}
for name, intervention in interventions.items():
    scorer = circuits.SubsetScorer(network, prompts, every, intervention)
    posterior = circuits.circuit_posterior(scorer, penalty=0.01, tau=1)
    with warnings.catch_warnings():  # of temperatures that are not identified, see below
        warnings.simplefilter("ignore", UserWarning)
        calibrations[name] = circuits.calibrate(posterior, resamples=RESAMPLES)
    posteriors[name] = posterior.with_temperature(calibrations[name].tau)
posterior = posteriors["mean"]
rows = {name: p.inclusion.tolist() for name, p in posteriors.items()}
table = pd.DataFrame(rows, index=posterior.labels).T.round(3)
table["temperature"] = [p.tau for p in posteriors.values()]
table["identified"] = [calibration.is_identified for calibration in calibrations.values()]
table

# %% [markdown]
# Every split of the prompts agrees on every head, so each lower temperature fits as well: it is not
# identified, and `calibrate` warns of that. It returns the largest that fits.

# %%
sizes, loss = posterior.subsets.sum(-1), -posterior.log_likelihoods.mean(0)
has_both = posterior.subsets[:, [every.index(head) for head in planted]].all(-1)
figure = lh.plot.Picture(6.5, 3.2)
axis = figure.subplots()
for is_drawn, label in ((has_both, "with both planted heads"), (~has_both, "without one or both")):
    axis.scatter(sizes[is_drawn], loss[is_drawn], s=12, label=label)
axis.set_xlabel("heads of the subset")
axis.set_ylabel("KL from the whole network, nats")
axis.legend(loc="lower left")
figure.suptitle("All 256 subsets of heads")
figure

# %% [markdown]
# Both planted heads have P = 1 and all others P = 0, whatever stands in for a head that is off. The
# figure shows why: with both planted heads hardly anything is lost, however few the others are.
#
# ## Heads that act together
#
# The table of all subsets also has the exact interaction of heads: what two heads bring together
# beyond the sum of each, here with all other heads on.

# %%
pairs, values = circuits.interactions(posterior.log_likelihoods, order=2)
mean = values.mean(0)
top = mean.abs().argsort(descending=True)[:3].tolist()
pd.DataFrame(
    {
        "heads": [" ".join(posterior.labels[head] for head in pairs[i]) for i in top],
        "interaction, nats": [round(float(mean[i]), 3) for i in top],
    }
)

# %% [markdown]
# ## More heads than a table holds
#
# A table has at most 12 heads. For more, `gibbs` and `smc` sample subsets, and a guide of Pyro is
# fitted. With eight heads all can be compared with the exact posterior. The temperature is raised,
# so that probabilities are not all 0 or 1.

# %%
warm = posterior.with_temperature(0.5)
scorer = circuits.SubsetScorer(network, prompts, every, interventions["mean"])
density = circuits.SubsetDensity(scorer, penalty=0.01, tau=0.5)
layers = [[0, 1, 2, 3], [4, 5, 6, 7]]
samples = {
    "exact": warm,
    "Gibbs sampling": circuits.gibbs(density, layers, sweeps=FEW),
    "sequential Monte Carlo": circuits.smc(density, layers, particles=2 * FEW),
}
table = pd.DataFrame({n: s.inclusion.tolist() for n, s in samples.items()}, index=warm.labels).T
exact = float(warm.log_density.logsumexp(0))
table["log evidence"] = [exact, None, samples["sequential Monte Carlo"].log_evidence]
print(f"subsets that the network was run with: {scorer.evaluations}")
table.round(3)

# %% [markdown]
# A guide has a bound on the evidence. Its *gap* is the KL divergence from the posterior: exact,
# because all subsets are summed. The guides differ in what a head may depend on: on no other head
# (mean-field), on earlier heads of its layer (autoregressive), or on heads of lower layers
# (cascaded).

# %%
rows = []
for structure in ("mean-field", "autoregressive", "cascaded"):
    guide = circuits.CircuitGuide([HEADS, HEADS], structure)
    guide.logits.data.copy_(warm.log_odds)  # it begins at the marginals
    circuits.fit_guide(guide, warm.log_density, steps=FEW, learning_rate=0.2)
    bound = circuits.exact_bound(guide, warm.log_density)
    rows.append({"guide": structure, "bound": bound.elbo, "gap": bound.gap})
pd.DataFrame(rows).set_index("guide").round(4)

# %% [markdown]
# In this network the six other heads do not depend on each other, so no guide has a gap. In SmolLM2
# guides differ: `experiments/results/circuits`.
#
# ## The same for SmolLM2
#
# The task is indirect objects: "When Mary and John went to the store, John gave a book to" is
# followed by " Mary". In the paired prompt all names are others. Nine prompts, the nine heads of
# the last layer: 512 subsets. The temperature is the one of 27 heads
# in `experiments/results/circuits`.

# %%
NAMES = [" Mary", " John", " Tom", " James", " Anna", " Sarah", " Paul", " Mark", " Laura"]
if SMOLLM2.is_dir() and not SMOKE:
    smollm2 = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    texts, pairs, right, wrong = [], [], [], []
    for i in range(9):
        first, second, *rest = NAMES[i:] + NAMES[:i]
        text = "When{} and{} went to the store,{} gave a book to"
        texts.append(tokenizer(text.format(first, second, second)).input_ids)
        pairs.append(tokenizer(text.format(*rest[:3])).input_ids)
        right.append(tokenizer(first).input_ids)
        wrong.append(tokenizer(second).input_ids)
    prompts = circuits.Prompts.of(texts, right, wrong)
    other = Counterfactual(smollm2.eval(), circuits.Prompts.of(pairs).inputs)
    scorer = circuits.SubsetScorer(smollm2, prompts, ["decoder.29.self"], other)
    posterior = circuits.circuit_posterior(scorer, penalty=0.003, tau=1 / 64)
    intervals = posterior.bootstrap()
    pairs, values = circuits.interactions(posterior.log_likelihoods, order=2)
    largest = int(values.mean(0).abs().argmax())
    pair = " ".join(posterior.labels[head] for head in pairs[largest])
    print(f"largest interaction: {pair}, {values[:, largest].mean():.3f} nats")
    columns = {"P": posterior.inclusion, "low": intervals.low, "high": intervals.high}
    table = pd.DataFrame({n: x.numpy() for n, x in columns.items()}, index=posterior.labels)
    without = -posterior.log_likelihoods.mean(0)[[-1 - 2**head for head in range(9)]]
    table["KL without it"] = without.numpy()
else:
    table = pd.DataFrame()
    print(f"there is no folder {SMOLLM2.name}: nothing was computed")
table.round(3)

# %% [markdown]
# Heads 0 and 1 are needed together: with one of them alone the network predicts something else.
# Without both it loses less: their interaction is positive. Three heads have P near 1. The interval
# is over prompts, by bootstrap.
#
# ## Limits
#
# * A planted circuit of two heads is easy: attribution finds it too. How often heads of a stated
#   probability are needed on fresh prompts: `docs/circuits.md`.
# * P is of one network, one task, one intervention, one likelihood and one penalty.
# * A subset of heads is a coarse circuit: MLPs and the edges between heads are not in it.
