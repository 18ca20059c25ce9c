# %% [markdown]
# # The heads of a network of Hugging Face
#
# `lh.latent(network)` makes the attention logits of a network of `transformers` sample sites. A
# small GPT-2 is made and trained in this notebook, so that nothing is downloaded. In its place may
# stand `GPT2LMHeadModel.from_pretrained(...)`, BERT, Llama, BART, Marian or T5.
#
# **You learn** how a network becomes latent and plain again; how `lh.fit` trains a guide on a
# frozen network, and how much noise each head bears; how to ask which heads can go, and to remove
# them for real; and how a head that points back is put above the decoder.
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
from latentheads.analysis import NoisyHeads
from latentheads.corpora import Part
from latentheads.guides import Exact, Tied
from latentheads.models import make_prior

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
transformers.utils.logging.disable_progress_bar()
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
LINES, HELD_OUT, STEPS, FEW, DRAWS = (8, 3, 1, 1, 1) if SMOKE else (0, 100, 390, 60, 3)
LAYERS, HEADS, WIDTH = (1, 2, 4) if SMOKE else (3, 4, 96)

corpus = lh.data.PythonDocs(block=0, min_count=3, max_train_samples=LINES).load()
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
# ## One call
#
# The network's own code runs, with its own weights. It is changed in one thing, the attention
# function that it calls by name. `model.batch` takes what a tokenizer gives; a language model is
# its own label. With the prior `delta` there is no noise: so the network itself is trained.

# %%
model = lh.latent(network, prior="delta")
print([block.site() for block in model.blocks])


def read(part: Part, tokens: int = 512) -> list[lh.Batch]:
    """A part of the corpus as a tokenizer would give it."""
    found = []
    for batch in lh.batches(part, tokens):
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
pd.DataFrame([{"steps": r["step"], "log p a token": r["valid"]["elbo"]} for r in fitted.history])

# %% [markdown]
# From here on it is frozen. `lh.plain` gives the network back: it says the same by its own
# attention, to rounding.

# %%
network.requires_grad_(False)
inputs = dict(valid[0].inputs)
with torch.no_grad():
    through = network(**inputs).logits
    lh.plain(model)
    print(f"largest difference of a logit: {(network(**inputs).logits - through).abs().max():.0e}")

# %% [markdown]
# ## How much noise does a head bear?
#
# Now every logit has the prior N(c, 4²), where c is what the network computes, and the guide is
# N(c, s²) with a scale s for each head: `NoisyHeads`. Only those few numbers are trained. With
# KL weight 1 the objective is the bound; a smaller weight leaves less noise. What is printed is the
# true bound in every row. Where the scales alone are wanted,
# `lh.analysis.learn_noise(model, batches, kl_weight)` learns them in one call.

# %%
WEIGHTS = (1.0, 0.01, 0.003, 0.001)[: 2 if SMOKE else 4]
model = lh.latent(network, make_prior("independent", scale=4.0))
rows, scales = [], {}
for weight in WEIGHTS:
    guide = NoisyHeads(model)
    options = {"steps": FEW, "warmup_steps": 1, "report_every": FEW, "learning_rate": 0.1}
    options["optimizer"] = "adamw"
    fitted = lh.fit(model, guide, train, valid, max_kl_weight=weight, quiet=True, **options)
    report, scales[weight] = fitted.report, torch.stack([*guide.scales().values()])
    least, largest = scales[weight].aminmax()
    rows.append({"KL weight": weight, "bound": report.elbo, "KL": report.kl})
    rows[-1] |= {"log-likelihood": report.log_likelihood, "least s": least, "largest s": largest}
print(f"without noise: {whole:.3f} nats per token")
pd.DataFrame(rows).astype(float).round(3)

# %% [markdown]
# **At weight 1 there is nothing but noise**: every s is the prior's but for a hundredth, and it
# costs next to nothing. A token is worth a few nats and has many logits, and each would have to be
# paid for. The likelihood loses little by it: where these heads look matters little yet. The rows
# below are worse as bounds, and meant to be: they are points of a curve, what is won for how many
# nats, and there heads differ.
#
# ## Which heads can go
#
# Beside the noise stands the gradient's importance of each head (Michel et al. 2019).

# %%
plain = lh.latent(lh.plain(model), "delta")
gradient = lh.analysis.gradient_importance(plain, train[:20], normalise=False)
names = [block.name for block in plain.blocks]
shown = {
    f"learned noise of each head (KL weight {WEIGHTS[-2]:g})": scales[WEIGHTS[-2]],
    "importance by the gradient, nats": torch.stack([gradient[name] for name in names]),
}
figure = lh.plot.Picture(7.5, 3)
for axis, (title, values) in zip(figure.subplots(1, 2), shown.items()):
    picture = axis.imshow(values.numpy(), aspect="auto")
    axis.set_title(title)
    axis.set_xlabel("head")
    axis.set_ylabel("layer")
    axis.set_xticks(range(HEADS))
    axis.set_yticks(range(LAYERS))
    figure.colorbar(picture, ax=axis)
figure.suptitle("Two measures of every head")
figure

# %% [markdown]
# Where heads look matters in the lowest layer, and so does what they say. Now heads are removed by
# either ranking, and at random: `remove_heads` cuts the matrices of the network itself.

# %%
folder, shares = "network", (2,) if SMOKE else (3, 2, 1)
numbers = [LAYERS * HEADS * share // 4 for share in shares]
lh.plain(plain).save_pretrained(folder)
rankings = {
    "noise": {name: -each for name, each in zip(names, scales[WEIGHTS[-2]])},
    "gradient": gradient,
    **{
        f"random {n}": {name: torch.rand(HEADS) for name in names} for n in range(1 if SMOKE else 3)
    },
}


def keep_best(ranking: dict[str, torch.Tensor], number: int) -> lh.pretrained.Pretrained:
    """The network of the folder with so many of its heads."""
    smaller = lh.latent(lh.pretrained.from_pretrained(folder).eval(), "delta")
    lh.pruning.remove_heads(smaller, lh.pruning.most_important(ranking, number))
    return smaller


curves = {"heads": numbers}
for name, ranking in rankings.items():
    left = [keep_best(ranking, number) for number in numbers]
    curves[name] = [lh.evaluate(each, Tied(each), valid).elbo for each in left]
pd.DataFrame(curves).set_index("heads").round(3)

# %% [markdown]
# Both rankings lose less than the three random ones, and as much as each other. That need not
# be so: noise asks whether it matters *where* a head looks, and a head that may look anywhere can
# still add what all others lack. In MiniLM the two do not agree: `experiments/results/minilm`.
#
# The configuration keeps which heads are left, and `latentheads.pretrained.from_pretrained` opens
# what `save_pretrained` wrote.

# %%
few = lh.plain(keep_best(gradient, numbers[-1]))
few.save_pretrained("few")
again = lh.pretrained.from_pretrained("few").eval()
with torch.no_grad():
    assert torch.equal(again(**inputs).logits, few(**inputs).logits)
print(f"{network.num_parameters():,} -> {few.num_parameters():,} parameters")
again.config.kept_heads

# %% [markdown]
# ## A head that points back
#
# A block of alignments stands between the decoder's last states and its output layer. Its head
# points at one of the tokens before, or at null, and all places are summed out: log p is exact. At
# the start it is the network's own. Only the block is trained.

# %%
aligned = lh.latent(network, latents=[lh.AlignmentOptions(blocks=1, width=32)])
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
print(f"log p a token: {before:.4f} at the start, {pointing.report.exact:.4f} with the head")

# %% [markdown]
# It starts where the network stands, and after so few steps it has hardly left. The network
# itself now speaks with the sum, in its own `generate` too. A cache has no states of the tokens
# before, which the head points at.

# %%
prompt = torch.tensor([[1, *corpus.target.encode("the value of the")[:-1]]])
options = {"max_new_tokens": 12, "do_sample": False, "num_beams": 3, "use_cache": False}
for each in (network, lh.plain(aligned)):
    written = each.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    print(corpus.target.decode(written[0, 1:].tolist()))

# %% [markdown]
# ## Limits
#
# * One seed, and a network of a minute. On a real one, MiniLM with its 72 heads, three seeds:
#   `experiments/results/minilm`.
# * Twelve heads are few to rank, three random rankings are few to beat, and 100 sentences tell
#   apart no differences of a few thousandths of a nat.
# * The head that points back shows how it is done, not what it is worth: that takes a longer
#   training, of the network too. `docs/alignments.md`.
# * The weight of the KL is chosen by hand. The bound itself is the first row.
