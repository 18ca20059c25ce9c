"""Continues text with a finished language model.

python experiments/generate.py runs/cascaded-seed0 --prompt "The road" --number 3
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import latentheads.experiments.cli.beginning  # noqa: F401

import torch
from jsonargparse import Namespace

from latentheads.batch import BOS, EOS, SPECIALS, UNK
from latentheads.checks import check_least, check_seed
from latentheads.corpora import Vocabulary
from latentheads.decoding.sampling import sample_text
from latentheads.decoding.translate import Lose
from latentheads.experiments.cli.errors import Losses, ending, in_a_line, lacks_memory, streaming
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.options import Parser, add_run_options
from latentheads.experiments.translate import chunks, too_wide
from latentheads.guide import WithSelection
from latentheads.runs.loading import Loaded, load_run

DESCRIPTION = (
    "Continues prompts with a finished language model, token by token.\n\n"
    "    python experiments/generate.py runs/coda-seed0 --prompt 'The road' --number 3\n\n"
    "Prompts come from --prompt, or from standard input, one a line; at a terminal, where "
    "neither is given, text begins from nothing. A model of sentences writes one line a text, "
    "ended where the model ends the sentence. A model of running text writes as many tokens as "
    "it is asked for, over several lines, and an empty line behind each text. The same options "
    "give the same text on the same machine. A prompt that is too long is named on standard "
    "error and its texts stay empty; the status is then 1."
)
TOGETHER = 64
"""Continuations drawn side by side."""
NAMED = 10
"""Unknown words that a message names at most."""

Sampler = Callable[[Sequence[Sequence[int]]], list[list[int]]]


def make_parser() -> Parser:
    """Makes the parser."""
    usage = "generate.py [options] RUN"
    parser = Parser(prog="generate.py", usage=usage, description=DESCRIPTION)
    parser.sections = {
        "what to write": ("prompt", "number", "length", "unknown"),
        "decoding": ("temperature", "top_k", "draws", "context"),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument("run", type=str, help="folder of a language model that run.py wrote")
    parser.add_argument(
        "--prompt",
        type=str,
        action="append",
        help="text to continue, instead of standard input; may be given several times",
    )
    parser.add_argument("--number", type=int, default=1, help="continuations of each prompt")
    parser.add_argument(
        "--length", type=int, default=100, help="tokens written behind a prompt, at most"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="what logits are divided by: 1 draws from the model's law, less is safer, more is "
        "wilder, 0 always takes the likeliest token",
    )
    parser.add_argument(
        "--top_k", type=int, default=0, help="draw among so many likeliest tokens; 0: all"
    )
    parser.add_argument(
        "--context",
        type=int,
        help="tokens of running text kept when the model's block is full (default: the run's own "
        "context, or half a block)",
    )
    parser.add_argument(
        "--unknown", action="store_true", help="let the unknown word come; else it never does"
    )
    parser.add_argument(
        "--draws",
        type=Literal[0, 1],
        default=0,
        help="1: draw the heads from their prior as each token is written; 0: they are at its "
        "location. Which of them speak is the likeliest in either case",
    )
    add_run_options(parser, "of the draws")
    return parser


def block_of(run: Loaded) -> int:
    """Tokens of the blocks of a running text; 0 for a model of sentences."""
    return run.settings.data.block


def load(options: Namespace) -> tuple[Loaded, Sampler]:
    """Loads the run and puts together how it is drawn from."""
    check_least(vars(options), number=1)
    check_seed(options.seed)
    for prompt in options.prompt or ():
        if any("\ud800" <= character <= "\udfff" for character in prompt):
            raise ValueError("prompt is no UTF-8")
    run = load_run(Path(options.run), options.checkpoint, options.device, options.trust)
    if run.source is not None:
        raise ValueError(f"{options.run} is a translation run: use translate.py")
    block, context = block_of(run), run.settings.data.context
    sampler = partial(
        sample_text,
        run.model,
        length=options.length,
        temperature=options.temperature,
        top_k=options.top_k,
        block=block,
        context=(context or block // 2) if options.context is None else options.context,
        drawn=bool(options.draws),
        stop=not block,
        begin=EOS if block else BOS,
        unknown=options.unknown,
    )
    sampler([])  # refuses a wrong option before anything is read
    return run, sampler


def prompts(options: Namespace) -> Iterator[str]:
    """The texts to continue, each when it is asked for.

    Raises:
        ValueError: Standard input has no line, or one that is no UTF-8.
    """
    if options.prompt:
        yield from options.prompt
    elif sys.stdin is not None and sys.stdin.isatty():
        yield ""
    else:
        found = False
        for lines in chunks(sys.stdin.buffer, 1) if sys.stdin is not None else ():
            found = True
            yield from lines
        if not found:
            raise ValueError(
                "standard input has no prompt: give --prompt TEXT, or --prompt= to begin from "
                "nothing"
            )


def encode(vocabulary: Vocabulary, prompt: str, running: bool) -> list[int]:
    """The tokens of a prompt; only running text has EOS between lines, and nothing a special token.

    Words that the vocabulary does not hold are told on standard error, but for ``<unk>``.
    """
    lines = prompt.split("\n") if running else [prompt.replace("\n", " ")]
    rows = [[max(token, UNK) for token in vocabulary.encode(line)[:-1]] for line in lines]
    if any(UNK in row for row in rows):
        tell_unknown(vocabulary, prompt)
    return [token for row in rows for token in (*row, EOS)][:-1]


def tell_unknown(vocabulary: Vocabulary, prompt: str) -> None:
    """Says which words of a prompt are unknown, in one line."""
    words = [word for word in dict.fromkeys(prompt.split()) if word != SPECIALS[UNK]]
    unknown = [word for word in words if min(vocabulary.encode(word)[:-1]) <= UNK]
    more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
    if unknown:
        named = ", ".join(unknown[:NAMED])
        print(f"generate.py: unknown to the model: {named}{more}", file=sys.stderr)


def decode(vocabulary: Vocabulary, tokens: Iterable[int]) -> str:
    """Turns tokens into text, with a new line behind each EOS.

    A newline that the model writes, as a byte like any other, becomes a space.
    """
    lines: list[list[int]] = [[]]
    for token in tokens:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(vocabulary.decode(line).replace("\n", " ") for line in lines)


def continued(run: Loaded, sampler: Sampler, prompt: str, number: int) -> Iterator[str]:
    """Continues a prompt, which begins each text as it was typed."""
    running = block_of(run) > 0
    given = encode(run.target, prompt, running)
    begun = decode(run.target, given)
    for start in range(0, number, TOGETHER):
        with WithSelection(run.guide):
            texts = sampler([given] * min(TOGETHER, number - start))
        for found in texts:
            if not running and found[-1] == EOS:
                del found[-1]
            yield prompt + decode(run.target, [*given, *found]).removeprefix(begun)


def texts_of(run: Loaded, sampler: Sampler, prompt: str, number: int, lose: Lose) -> Iterator[str]:
    """Continues a prompt as :func:`continued`; empty texts where it is lost.

    Args:
        run: The run.
        sampler: Continues tokens.
        prompt: The text.
        number: Continuations.
        lose: Told why the prompt is lost: it is too long for the run or for the machine.
    """
    done, why = 0, _too_long(run, prompt)
    try:
        for text in () if why else continued(run, sampler, prompt, number):
            yield text
            done += 1
    except (MemoryError, RuntimeError) as reason:
        if not lacks_memory(reason):
            raise
        why = in_a_line(reason)
    if why:
        lose(0, why)
        yield from [""] * (number - done)


def _too_long(run: Loaded, prompt: str) -> str:
    """Why a prompt is longer than a sentence of the run may be; nothing where it is not."""
    if block_of(run) or not run.settings.data.max_line:
        return ""
    if why := too_wide(run, prompt):
        return why
    most = run.settings.data.max_line
    tokens = len(run.target.encode(prompt))
    return f"{tokens:,} tokens, more than max_line {most:,}" if tokens > most else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ending("generate.py"):
        run, sampler = load(options)
    torch.manual_seed(options.seed)
    end = "\n\n" if block_of(run) else "\n"
    losses = Losses("generate.py", "prompt")
    with streaming("generate.py"):
        for prompt in prompts(options):
            for text in texts_of(run, sampler, prompt, options.number, losses.note):
                sys.stdout.buffer.write(f"{text}{end}".encode())
                sys.stdout.buffer.flush()
            losses.before += 1
    return int(losses.number > 0)


if __name__ == "__main__":
    sys.exit(main())
