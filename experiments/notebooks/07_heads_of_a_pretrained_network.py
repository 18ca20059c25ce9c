# %% [markdown]
# # The heads of a Hugging Face network
#
# `lh.latent(network)` makes the attention logits of a `transformers` network sample sites. A small
# GPT-2 is made and trained in this notebook, so that nothing is downloaded. You can use
# `GPT2LMHeadModel.from_pretrained(...)`, BERT, Llama, BART, Marian or T5 instead.
#
# **You learn**
#
# * how to make the heads of a network latent, and how to undo it;
# * how `lh.fit` trains a guide on a frozen network, and how much noise each head tolerates;
# * which heads can be removed, and how to remove them from the weights;
# * how to add an alignment head that points to previous tokens.
#
# **The same from the command line**, for a sentence encoder in a folder:
#
# ```bash
# python experiments/studies/paraphrase.py --network FOLDER --english train.en --german train.de \
#     --out runs/minilm
# ```

# %%
import os

import matplotlib.style
import pandas as pd
import torch
import transformers

import latentheads as lh
from latentheads import pruning
from latentheads.contrib.heads import NoisyHeads
from latentheads.corpora import Part
from latentheads.guides import Exact, Tied
from latentheads.models import make_prior

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
transformers.utils.logging.disable_progress_bar()
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
LINES, HELD_OUT, STEPS, FEW, DRAWS = (8, 3, 1, 1, 1) if SMOKE else (0, 100, 390, 60, 3)
LAYERS, HEADS, WIDTH = (1, 2, 4) if SMOKE else (3, 4, 96)

corpus = lh.data.PythonDocs(unit=lh.data.WordUnit(min_count=3), max_train_samples=LINES).load()
config = transformers.GPT2Config(
    vocab_size=len(corpus.target),
    n_embd=WIDTH,
    n_layer=LAYERS,
    n_head=HEADS,
    n_positions=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
network = transformers.GPT2LMHeadModel(config)
print(corpus, f"{network.num_parameters():,} parameters", sep="\n")

# %% [markdown]
# ## Latent heads
#
# The network's own code runs with its own weights. Only the attention function that it calls by
# name is replaced. `model.batch` takes what a tokenizer returns; for a language model the input ids
# are also the labels. The prior `delta` has no noise, so the first training is that of the plain
# network.

# %%
model = lh.latent(network, prior="delta")
print([block.site() for block in model.blocks])


def read(part: Part, tokens: int = 512) -> list[lh.data.Batch]:
    """Batches of a part of the corpus, in the format of a tokenizer."""
    found = []
    for batch in lh.data.batches(part, tokens, shuffle=False):
        words = torch.cat([batch.decoder_input[:, :1], batch.target], 1)
        found.append(model.batch({"input_ids": words, "attention_mask": (words != 0).long()}))
    return found


train, valid = read(corpus.train), read(corpus.valid.first(HELD_OUT))
fitted = lh.fit(
    model,
    Tied(model),
    train,
    valid,
    steps=STEPS,
    optimizer="adamw",
    learning_rate=3e-3,
    warmup_steps=max(1, STEPS // 7),
    report_every=max(1, STEPS // 3),
    quiet=True,
)
whole = fitted.report.elbo
pd.DataFrame([{"steps": r["step"], "log p per token": r["valid"]["elbo"]} for r in fitted.history])

# %% [markdown]
# From here on the network is frozen. `lh.contrib.hf.plain` restores its own attention function.
# The outputs are equal up to rounding.

# %%
network.requires_grad_(False)
inputs = dict(valid[0].inputs)
with torch.no_grad():
    through = network(**inputs).logits
    lh.contrib.hf.plain(model)
    print(f"largest difference of a logit: {(network(**inputs).logits - through).abs().max():.0e}")

# %% [markdown]
# ## How much noise does a head tolerate?
#
# Now every logit has the prior N(c, 4²), where c is the network's own logit. The guide `NoisyHeads`
# is N(c, s²), with one learned scale s for each head. A head that tolerates noise gets a large s.
# The KL weight sets the trade-off: with weight 1 the objective is the bound; a smaller weight leads
# to less noise. The table prints the true bound in every row. If only the scales are needed,
# `lh.contrib.heads.learn_noise(model, batches, kl_weight)` learns them in one call.

# %%
WEIGHTS = (1.0, 0.01, 0.003, 0.001)[: 2 if SMOKE else 4]
model = lh.latent(network, make_prior("independent", scale=4.0))
rows, scales = [], {}
for weight in WEIGHTS:
    guide = NoisyHeads(model)
    options = {"steps": FEW, "warmup_steps": 1, "report_every": FEW, "learning_rate": 0.1}
    options["optimizer"] = "adamw"
    fitted = lh.fit(model, guide, train, valid, loss={"kl_weight": weight}, quiet=True, **options)
    report, scales[weight] = fitted.report, torch.stack([*guide.scales().values()])
    least, largest = scales[weight].aminmax()
    rows.append({"KL weight": weight, "bound": report.elbo, "KL": report.kl})
    rows[-1] |= {"log-likelihood": report.log_likelihood, "least s": least, "largest s": largest}
print(f"without noise: {whole:.3f} nats per token")
pd.DataFrame(rows).astype(float).round(3)

# %% [markdown]
# **At KL weight 1 the guide stays at the prior**: every s is 4 up to about one percent. The
# log-likelihood falls by 0.12 nats per token. A token has few nats of log-likelihood but many
# logits, each with its own KL, so less noise would cost more KL than it gains. The rows with a
# smaller weight have lower bounds, as expected. They are points of a trade-off curve,
# log-likelihood gained for KL, and there the scales of the heads differ.
#
# ## Which heads can be removed
#
# The figure has the learned noise of each head and its importance by the gradient of the loss
# (Michel et al. 2019).

# %%
plain = lh.latent(lh.contrib.hf.plain(model), "delta")
gradient = lh.contrib.heads.gradient_importance(plain, train[:20], normalise=False)
names = [block.name for block in plain.blocks]
shown = {
    f"learned scale s (KL weight {WEIGHTS[-2]:g})": scales[WEIGHTS[-2]],
    "gradient importance, nats": torch.stack([gradient[name] for name in names]),
}
figure = lh.plot.Picture(7.5, 3)
for axis, (title, values) in zip(figure.subplots(1, 2), shown.items()):
    image = axis.imshow(values.numpy(), aspect="auto", vmin=0)
    axis.set_title(title)
    axis.set_xlabel("head")
    axis.set_ylabel("layer")
    axis.set_xticks(range(HEADS))
    axis.set_yticks(range(LAYERS))
    figure.colorbar(image, ax=axis)
figure.suptitle("Learned noise and gradient importance of each head")
figure

# %% [markdown]
# Both measures rank the lowest layer first: it tolerates the least noise and has the largest
# gradients. Now heads are removed by either ranking, and at random. `remove_heads` makes the weight
# matrices of the network smaller.

# %%
folder, shares = "network", (2,) if SMOKE else (3, 2, 1)
numbers = [LAYERS * HEADS * share // 4 for share in shares]
lh.contrib.hf.plain(plain).save_pretrained(folder)
rankings = {
    "noise": {name: -each for name, each in zip(names, scales[WEIGHTS[-2]])},
    "gradient": gradient,
    **{
        f"random {n}": {name: torch.rand(HEADS) for name in names} for n in range(1 if SMOKE else 3)
    },
}


def keep_best(ranking: dict[str, torch.Tensor], number: int) -> lh.contrib.hf.Pretrained:
    """The network of the folder with its most important heads."""
    smaller = lh.latent(lh.contrib.hf.from_pretrained(folder).eval(), "delta")
    pruning.remove_heads(smaller, pruning.most_important(ranking, number))
    return smaller


curves = {"heads": numbers}
for name, ranking in rankings.items():
    left = [keep_best(ranking, number) for number in numbers]
    curves[name] = [lh.evaluate(each, Tied(each), valid).elbo for each in left]
pd.DataFrame(curves).set_index("heads").rename_axis("heads left (log p per token)").round(3)

# %% [markdown]
# Both rankings lose less than the three random ones, and about as much as each other. They need not
# agree: the noise measures whether the attention pattern of a head matters, and a head with any
# pattern can still add a value that the others do not. In MiniLM the two rankings differ:
# `experiments/results/minilm`.
#
# The configuration stores which heads are left, and `latentheads.contrib.hf.from_pretrained` opens
# what `save_pretrained` wrote.

# %%
few = lh.contrib.hf.plain(keep_best(gradient, numbers[-1]))
few.save_pretrained("few")
again = lh.contrib.hf.from_pretrained("few").eval()
with torch.no_grad():
    assert torch.equal(again(**inputs).logits, few(**inputs).logits)
print(f"{network.num_parameters():,} -> {few.num_parameters():,} parameters")
again.config.kept_heads

# %% [markdown]
# ## A head that points to previous tokens
#
# An alignment block is added between the decoder's last states and its output layer. Its head
# points to one of the previous tokens, or to a null position. All positions are summed out, so log
# p is exact. The block starts as the identity: at step 0 log p is that of the network. Only the
# block is trained.

# %%
aligned = lh.latent(network, latents=[lh.latents.AlignmentOptions(blocks=1, width=32)])
texts = [aligned.batch(dict(batch.inputs)) for batch in train]
held_out = [aligned.batch(dict(batch.inputs)) for batch in valid]
before = lh.evaluate(aligned.eval(), Exact(aligned), held_out).exact
pointing = lh.fit(
    aligned,
    Exact(aligned),
    texts,
    held_out,
    steps=2 * FEW,
    optimizer="adamw",
    learning_rate=3e-3,
    warmup_steps=max(1, FEW // 8),
    report_every=FEW,
    quiet=True,
)
print(f"log p per token: {before:.4f} at the start, {pointing.report.exact:.4f} with the head")

# %% [markdown]
# The gain after so few steps is small (0.006 nats per token). The network's own `generate` now uses
# the summed distribution. It runs without a cache, because a cache does not contain the states of
# previous tokens that the head points to. The same prompt is continued with the head and, after
# `lh.contrib.hf.plain`, without it:

# %%
prompt = torch.tensor([[1, *corpus.target.encode("the value of the")[:-1]]])
options = {"max_new_tokens": 12, "do_sample": False, "num_beams": 3, "use_cache": False}


def continuation() -> str:
    """What the network continues the prompt with, by beam search."""
    ids = network.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    return corpus.target.decode(ids[0, 1:].tolist())


print("with the head:   ", continuation())
lh.contrib.hf.plain(aligned)
print("without the head:", continuation())

# %% [markdown]
# ## Limits
#
# * One seed, and a network that was trained for a minute. A real one, MiniLM with its 72 heads,
#   three seeds: `experiments/results/minilm`.
# * Twelve heads are few to rank, three random rankings are a weak baseline, and 100 sentences do
#   not resolve differences of a few thousandths of a nat.
# * The alignment head shows how to add one, not what it gains: that needs a longer training, of the
#   network too. See `docs/alignments.md`.
# * The KL weight is chosen freely. The bound itself is the first row.
