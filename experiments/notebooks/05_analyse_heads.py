# %% [markdown]
# # Analyse the heads of a model of your own text
#
# What does a head do? Most answers are a number without an error bar. Heads that are sampled have
# one: every figure below can be asked for under several samples, and a role that a head plays in
# half of them is not a role.
#
# **You learn** how to train on a folder of your own text; how to record every head of any pass; how
# to read entropy, confidence, disagreement (JSD), importance, relevance and roles, with their
# spread over samples; how to put two runs side by side; and how to link the words of a sentence
# with those of its translation.
#
# **The same from the command line:**
#
# ```bash
# python experiments/run.py --data pairs --data.folder text --data.source en --data.target velu \
#     --data.vocab_size 1000 --recipe coda-cs --out runs/coda-cs
# python experiments/run.py --data pairs --data.folder text --data.source en --data.target velu \
#     --data.vocab_size 1000 --guide cascaded --alignments.blocks 1 --loss marginal \
#     --out runs/aligned
# python experiments/analyse.py runs/coda-cs runs/aligned --draws 8
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
matplotlib.style.use(lh.plot.STYLE)  # figures made by hand look as the library's
SMOKE = "LATENTHEADS_SMOKE" in os.environ  # a test runs this notebook in a moment
SENTENCES, HELD_OUT, READ = (64, 8, 4) if SMOKE else (4000, 200, 100)
STEPS, DRAWS = (2, 2) if SMOKE else (700, 10)
SIZES = {"width": 8, "feed_forward": 8, "heads": 2} if SMOKE else {"width": 64, "heads": 4}

# %% [markdown]
# ## Your own text
#
# A folder with `train`, `valid` and `test` in two languages, a sentence a line, is a corpus. Here
# the grammar writes one, so that the notebook needs no file. Put your own in its place and change
# the two languages: nothing below knows the difference, but that gold links are not known then.

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
# One model samples the logits of all its attention heads (`coda-cs`: scores plus noise). The other
# has heads without noise, and one latent alignment head above the decoder that is sampled.

# %%
plan = {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 200}
options = {"steps": STEPS, "tokens": 512, "report_every": 200, "samples": 2, "quiet": True, **plan}
torch.manual_seed(0)
noisy = Translation.of(corpus, prior="independent", layers=2, **SIZES)
lh.Trainer(noisy, Tied(noisy), corpus, out="runs/coda-cs", **options).fit()

# %%
torch.manual_seed(0)
one = lh.AlignmentOptions(blocks=1)
aligned = Translation.of(corpus, prior="delta", layers=2, latents=[one], **SIZES)
exact = {"loss": "marginal", **options}
lh.Trainer(aligned, Cascaded(aligned), corpus, out="runs/aligned", **exact).fit()

# %%
runs = {name: lh.load_run(f"runs/{name}", corpus=corpus) for name in ("coda-cs", "aligned")}
part = corpus.valid.first(READ)
run = runs["coda-cs"]

# %% [markdown]
# ## Recording
#
# A `Recording` keeps what every block computes while it is open, in any pass: training, evaluation,
# decoding. Inside a guide that is a sample from the posterior.

# %%
(batch,) = lh.batches(part.take([0]), tokens=4096)
with lh.analysis.Recording(run.model) as heads, torch.no_grad():
    run.guide(batch)
for block in heads.blocks:
    print(f"{block.name:18} weights {tuple(heads[block.name].weights.shape)}")

# %% [markdown]
# ## Entropy and confidence, with their spread
#
# `lh.analysis.measure` reads whole parts of a corpus. Without a guide, heads stand at their prior's
# location; with one they are sampled, from a seed. So a loop over seeds gives an error bar.


# %%
def parts() -> list[lh.Batch]:
    return list(lh.batches(part, tokens=512))


plain = lh.analysis.measure(run.model, parts())
sampled = [lh.analysis.measure(run.model, parts(), run.guide, seed=seed) for seed in range(DRAWS)]
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
axis.set_ylabel("entropy of a row, nats")
figure.suptitle("How spread each head is (coda-cs)")
figure.legend(loc="outside lower center", ncols=2)
figure

# %% [markdown]
# The bars are hardly seen: over a hundred sentences the noise of single rows averages out, so two
# heads whose points differ do differ, in this network and on these sentences. The crosses lie above
# the points where a head is spread: noise makes one key win by chance, and a sampled row is sharper
# than the row of the mean scores. Whoever reads the plug-in network alone takes these heads for
# more spread than they are.
#
# ## How far apart are heads?
#
# The Jensen-Shannon divergence of two heads, summed over the rows of a sentence as the paper does;
# both runs on one scale.

# %%
apart = {
    name: lh.analysis.divergence.divergence(each.model, parts(), latent=False)
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
    measured = lh.analysis.measure(each.model, parts())
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
# In each chain the heads with noise are the surer ones, and the further apart. Noise is a reason: a
# head whose scores lie close together wavers, so training drives them apart. The paper reports the
# same direction. But each is a single run, and these two differ in their alignments too.
#
# ## Which heads matter?
#
# *Importance* is the gradient of the loss by a mask on the head (Michel et al. 2019), *relevance*
# what is handed back to the head from the prediction, layer by layer (Voita et al. 2019). They need
# not agree: the one asks what a small change would do, the other where the value came from.

# %%
importance = lh.analysis.gradient_importance(run.model, parts())
few = list(lh.batches(corpus.valid.first(2 if SMOKE else 10), tokens=512))
shares = lh.analysis.relevance(run.model, few).shares
rows = {
    (name, head): {"importance": float(values[head]), "relevance": float(shares[name][head])}
    for name, values in importance.items()
    for head in range(len(values))
}
table = pd.DataFrame(rows).T
print(f"rank correlation of the two: {table.rank().corr().iloc[0, 1]:.2f}")
table.sort_values("importance", ascending=False).head(8).round(3)

# %% [markdown]
# A rank correlation of 24 heads varies by 0.2 by chance alone: whether these two agree at all is
# not known here.
#
# ## Roles, and how sure they are
#
# A head is *positional* if it points to one relative position at least 90 % of the time (Voita et
# al. 2019). Under samples that share has an error bar, and a head may be positional in some samples
# and not in others.

# %%
rows = []
for chain in ("encoder-self", "decoder-self", "decoder-cross"):
    found = []
    for seed in range(DRAWS):
        positions = lh.analysis.PositionalDetector()
        lh.analysis.detect(run.model, parts(), [positions], chain, run.guide, seed)
        found.append(positions.result())
    for block in found[0].share:
        offsets = torch.stack([each.offset[block] for each in found]).mode(0).values
        shares = torch.stack([each.share[block] for each in found])
        for head, offset in enumerate(offsets.tolist()):
            rows.append(
                {
                    "head": f"{block} {head}",
                    "points to": f"{offset:+d}",
                    "how often": float(shares[:, head].mean()),
                    "deviation": float(shares[:, head].std()),
                    "positional in": f"{(shares[:, head] >= 0.9).sum()} of {DRAWS} samples",
                }
            )
roles = pd.DataFrame(rows).sort_values("how often", ascending=False)
roles.head(6).round(3).reset_index(drop=True)

# %% [markdown]
# No head of this network is positional: the best points to one place in about half of the
# cases, and by the deviation no other sample would have changed that. Where a head stands near the
# threshold the last column tells how sure the role is.
#
# ## Which word translates which?
#
# `run.align` links the words of any sentence with those of any translation, by the exact posterior
# of the alignments. Subwords are joined. Here it reads the run's own translations.

# %%
texts = [text for text in corpus.source_texts(corpus.test) if len(text.split()) < 10][:3]
translations = runs["aligned"].translate(texts)
for text, translation, links in zip(
    texts, translations, runs["aligned"].align(texts, translations)
):
    words, others = text.split(), translation.split()
    print(*(f"{words[a]}={others[b]}" for a, b in sorted(links, key=lambda link: link[::-1])))

# %%
lh.plot.alignments(runs["aligned"], texts[0], target=translations[0])

# %% [markdown]
# Three laws of one sentence: what is believed before the word is known, the guide's, and Bayes'
# rule. The model says most of it before it has seen the word, since it translates its own sentence;
# the longer lines above show links that are plainly wrong. `02_exact_gaps` has a sentence in which
# the three differ.
#
# ## One page to look at
#
# `lh.report` puts all of this on one page of HTML that needs nothing but a browser: bounds, curves,
# every head under its samples with a slider, alignments, disagreement. It is written to a file, and
# as the last expression of a cell it shows itself in a frame. (GitHub shows no frames; a notebook
# that is opened, and the site of the documentation, do.)

# %%
more = {"shown": 1, "draws": 2, "sentences": 2} if SMOKE else {"shown": 3, "draws": 25}
page = lh.report(list(runs.values()), "report.html", **more)
print(page)
page

# %% [markdown]
# ## Limits
#
# * One seed of each recipe: whatever differs between the two runs may be the seed. `compare.py`
#   trains several and gives intervals; `experiments/results/multi30k-heads` has one such reading.
# * An error bar over samples says how much the noise moves a figure. It says nothing of other
#   seeds, other text, or of whether attention explains anything.
# * Syntactic roles need parses: the grammar's own (`lh.analysis.SyntacticDetector` with
#   `grammar_arcs`), or a CoNLL-U file (`analyse.py --conllu`).
