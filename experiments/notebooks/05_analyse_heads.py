# %% [markdown]
# # Analyse the heads of a model of your own text
#
# What does a head do? Most published answers are a number without an error bar. Latent heads are
# sampled, so every figure below can be computed for several samples: a head that has a role in half
# of the samples has no certain role.
#
# **You learn**
#
# * how to train on a folder of your own text;
# * how to record every head in any forward pass;
# * how to compute entropy, confidence, divergence (JSD), importance, relevance and roles, with
#   their standard deviation over samples;
# * how to compare two runs;
# * how to link the words of a sentence with those of its translation.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --data pairs --data.folder text --data.source en --data.target velu \
#     --data.vocab_size 1000 --recipe coda-cs --out runs/coda-cs
# python experiments/run.py --data pairs --data.folder text --data.source en --data.target velu \
#     --data.vocab_size 1000 --guide cascaded --alignments.blocks 1 --loss marginal \
#     --out runs/aligned
# python experiments/analyse.py runs/coda-cs runs/aligned --num_samples 8
# python experiments/translate.py runs/aligned --alignments links.txt < text/test.en > test.velu
# ```

# %%
import os
from pathlib import Path

import matplotlib.style
import pandas as pd
import torch

import latentheads as lh
from latentheads.guides import Cascaded, Tied
from latentheads.models import Translation

torch.manual_seed(0)
matplotlib.style.use(lh.plot.STYLE)  # the library's style for all figures
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs small sizes
SENTENCES, HELD_OUT, READ = (64, 8, 4) if SMOKE else (4000, 200, 100)
STEPS, DRAWS = (2, 2) if SMOKE else (700, 10)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}

# %% [markdown]
# ## Your own text
#
# A corpus is a folder with `train`, `valid` and `test` in two languages, one sentence per line.
# Here the grammar writes one, so that the notebook needs no files. For your own text change the
# folder and the two languages; the rest stays the same. Files have no gold links, so none are used
# below.

# %%
grammar = lh.data.Grammar(language="velu", sentences=SENTENCES, held_out=HELD_OUT).load()
folder = Path("text")
folder.mkdir(exist_ok=True)
for name in ("train", "valid", "test"):
    part = getattr(grammar, name)
    (folder / f"{name}.en").write_text("\n".join(grammar.source_texts(part)) + "\n")
    (folder / f"{name}.velu").write_text("\n".join(part.references) + "\n")

corpus = lh.data.Pairs(str(folder), source="en", target="velu", vocab_size=1000).load()
corpus

# %% [markdown]
# ## Two runs
#
# In the first model the logits of all attention heads are latent (`coda-cs`: scores plus N(0, 1)
# noise). The second has deterministic attention and one latent alignment head above the decoder:
# for each target token it samples one source position.

# %%
plan = {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 200}
options = {
    "steps": STEPS,
    "tokens": 512,
    "report_every": 200,
    "num_samples": 2,
    "quiet": True,
    **plan,
}
torch.manual_seed(0)
noisy = Translation.of(corpus, latents=[lh.latents.LogitsOptions()], layers=2, **SIZES)
lh.Trainer(noisy, Tied(noisy), corpus, out="runs/coda-cs", **options).fit()

# %%
torch.manual_seed(0)
one = lh.latents.AlignmentOptions(blocks=1)
aligned = Translation.of(corpus, layers=2, latents=[one], **SIZES)
exact = {"loss": "marginal", **options}
lh.Trainer(aligned, Cascaded(aligned), corpus, out="runs/aligned", **exact).fit()

# %%
runs = {name: lh.load_run(f"runs/{name}", corpus=corpus) for name in ("coda-cs", "aligned")}
part = corpus.valid.first(READ)
run = runs["coda-cs"]

# %% [markdown]
# ## Recording
#
# A `Recording` stores what every block computes while it is open, in any forward pass: training,
# evaluation, decoding. In a pass of the guide these are samples of the guide.

# %%
(batch,) = lh.data.batches(part.take([0]), tokens=4096, shuffle=False)
with lh.contrib.heads.Recording(run.model) as heads, torch.no_grad():
    run.guide(batch)
for block in heads.blocks:
    print(f"{block.name:18} weights {tuple(heads[block.name].weights.shape)}")

# %% [markdown]
# ## Entropy and confidence, with error bars
#
# `lh.contrib.heads.measure` computes statistics of all heads on a part of a corpus. Without a
# guide, heads are set to the location of their prior (the *plug-in* network). With a guide they are
# sampled, from a seed. A loop over seeds gives the error bar.


# %%
def parts() -> list[lh.data.Batch]:
    return list(lh.data.batches(part, tokens=512, shuffle=False))


plain = lh.contrib.heads.measure(run.model, parts())
sampled = [
    lh.contrib.heads.measure(run.model, parts(), run.guide, seed=seed) for seed in range(DRAWS)
]
rows = {}
for name, entropy in plain.entropy.items():
    over_samples = torch.stack([each.entropy[name] for each in sampled])
    for head in range(len(entropy)):
        rows[name, head] = {
            "plug-in": float(entropy[head]),
            "mean of samples": float(over_samples[:, head].mean()),
            "deviation": float(over_samples[:, head].std()),
        }
entropies = pd.DataFrame(rows).T
figure = lh.plot.Picture(7.5, 3.6)
axis = figure.subplots()
places = range(len(entropies))
axis.errorbar(
    places,
    entropies["mean of samples"],
    2 * entropies["deviation"],
    fmt="o",
    label=f"sampled: mean and two standard deviations over {DRAWS} samples",
)
axis.plot(places, entropies["plug-in"], "x", color="C1", label="plug-in: no noise")
axis.set_xticks(places, [f"{name} {head}" for name, head in entropies.index], rotation=90)
axis.set_xlabel("block and head")
axis.set_ylabel("mean entropy of a row, nats")
figure.suptitle("Entropy of the attention of each head (coda-cs)")
figure.legend(loc="outside lower center", ncols=2)
figure

# %% [markdown]
# The error bars are smaller than the points: over a hundred sentences the noise of single rows
# averages out. So two heads with different points do differ, in this network and on these
# sentences. For heads with high entropy the crosses (plug-in) lie above the points (samples): noise
# raises one key above the others, so a sampled row has a lower entropy than the row of the mean
# scores. The plug-in network alone overestimates their entropy.
#
# ## How different are heads?
#
# The Jensen-Shannon divergence (JSD) of two heads, summed over the rows of a sentence as in the
# CODA paper; both runs on one scale.

# %%
apart = {
    name: lh.contrib.heads.divergence(each.model, parts(), latent=False)
    for name, each in runs.items()
}
top = max(float(values.max()) for each in apart.values() for values in each.summed.values())
lh.plot.draw_divergence(apart["coda-cs"], "coda-cs, plug-in heads", top)

# %%
lh.plot.draw_divergence(apart["aligned"], "aligned", top)

# %% [markdown]
# ## Two runs side by side

# %%
summary = {}
for name, each in runs.items():
    measured = lh.contrib.heads.measure(each.model, parts())
    for chain in ("encoder-self", "decoder-self", "decoder-cross"):
        stack, kind = chain.split("-")
        own = [f"{stack}.{layer}.{kind}" for layer in (0, 1)]
        summary[chain, name] = {
            "entropy": float(torch.cat([measured.entropy[block] for block in own]).mean()),
            "confidence": float(torch.cat([measured.confidence[block] for block in own]).mean()),
            "JSD": apart[name].average(chain),
        }
pd.DataFrame(summary).T.round(3)

# %% [markdown]
# In each of the three attention types the heads with noise have lower entropy, higher confidence
# and a higher divergence. The noise is a possible reason: if the scores of a head are close
# together, noise changes its weights, so training drives the scores apart. The paper reports the
# same direction of the divergence. But each row is a single run, and the two runs also differ in
# their alignment head.
#
# ## Which heads matter?
#
# *Importance* is the gradient of the loss with respect to a mask on the head (Michel et al. 2019).
# *Relevance* is the share of the prediction that layer-wise relevance propagation assigns to the
# head (Voita et al. 2019). They need not agree: importance measures the effect of a small change,
# relevance where the value of the prediction came from.

# %%
importance = lh.contrib.heads.gradient_importance(run.model, parts())
few = list(lh.data.batches(corpus.valid.first(2 if SMOKE else 10), tokens=512, shuffle=False))
shares = lh.contrib.heads.relevance(run.model, few).shares
rows = {
    (name, head): {"importance": float(values[head]), "relevance": float(shares[name][head])}
    for name, values in importance.items()
    for head in range(len(values))
}
table = pd.DataFrame(rows).T
print(f"rank correlation of importance and relevance: {table.rank().corr().iloc[0, 1]:.2f}")
table.sort_values("importance", ascending=False).head(8).round(3)

# %% [markdown]
# With 24 heads, the rank correlation of unrelated measures has a standard deviation of 0.2. So this
# value does not show whether the two agree.
#
# ## Roles, with error bars
#
# A head is *positional* if at least 90 % of its largest weights are at one relative position (Voita
# et al. 2019). With sampled heads this share has an error bar, and a head can be positional in some
# samples and not in others.

# %%
rows = []
for chain in ("encoder-self", "decoder-self", "decoder-cross"):
    found = []
    for seed in range(DRAWS):
        positions = lh.contrib.heads.PositionalDetector()
        lh.contrib.heads.detect(run.model, parts(), [positions], chain, run.guide, seed)
        found.append(positions.result())
    for block in found[0].share:
        offsets = torch.stack([each.offset[block] for each in found]).mode(0).values
        shares = torch.stack([each.share[block] for each in found])
        for head, offset in enumerate(offsets.tolist()):
            rows.append(
                {
                    "head": f"{block} {head}",
                    "relative position": f"{offset:+d}",
                    "share": float(shares[:, head].mean()),
                    "deviation": float(shares[:, head].std()),
                    "positional in": f"{(shares[:, head] >= 0.9).sum()} of {DRAWS} samples",
                }
            )
roles = pd.DataFrame(rows).sort_values("share", ascending=False)
roles.head(6).round(3).reset_index(drop=True)

# %% [markdown]
# No head of this network is positional. The largest share is about one half, and its standard
# deviation over samples is far too small to reach 90 %. For a head near the threshold, the last
# column shows how certain the role is.
#
# ## Which word translates which?
#
# `lh.contrib.heads.align` links the words of a sentence with those of a translation, by the exact
# posterior of the alignment head. Subwords are joined to words. Here the translations are the run's
# own.

# %%
texts = [text for text in corpus.source_texts(corpus.test) if len(text.split()) < 10][:3]
translations = runs["aligned"].translate(texts)
all_links = lh.contrib.heads.align(runs["aligned"], texts, translations)
for text, translation, links in zip(texts, translations, all_links):
    words, others = text.split(), translation.split()
    print(*(f"{words[a]}={others[b]}" for a, b in sorted(links, key=lambda link: link[::-1])))

# %%
lh.plot.alignments(runs["aligned"], texts[0], target=translations[0])

# %% [markdown]
# The three panels are the prior (before the target word is known), the guide, and the exact
# posterior. They agree here: the sentence is the model's own translation, so the prior is already
# confident. In the two other lines above several links are wrong. `02_exact_gaps` has a sentence
# in which the three differ.
#
# ## One page for all
#
# `lh.contrib.page.report` writes one HTML page that needs nothing but a browser: bounds, curves,
# the samples of every head with a slider, alignments, divergences. As the last expression of a
# cell it is also shown in a frame. (GitHub shows no frames; Jupyter and the documentation site do.)

# %%
more = {"shown": 1, "num_samples": 2, "sentences": 2} if SMOKE else {"shown": 3, "num_samples": 30}
page = lh.contrib.page.report(list(runs.values()), "report.html", **more)
print(page)
page

# %% [markdown]
# ## Limits
#
# * One seed of each recipe: differences between the two runs may be due to the seed. `compare.py`
#   trains several and gives intervals; `experiments/results/multi30k-heads` has such a study.
# * An error bar over samples shows the effect of the noise. It does not cover other seeds or other
#   text, and it does not show that attention explains a prediction.
# * Syntactic roles need parses: the grammar's own (`lh.contrib.heads.SyntacticDetector` with
#   `grammar_arcs`), or a CoNLL-U file (`analyse.py --conllu`).
