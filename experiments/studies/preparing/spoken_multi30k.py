"""Multi30k, spoken by espeak-ng: image captions in English, and their German.

Six voices read the captions, half of them beside noise: who speaks, and where, is known. The same
text and the same espeak-ng give the same samples. What is spoken stays beside the place of the
corpus until that is whole, so that a process that was stopped can be taken up again.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from tqdm import tqdm

from latentheads.checks import check_least
from latentheads.contrib.speech.waveform import read_header, read_waveform
from latentheads.corpora.part import Log
from latentheads.corpora.text import SentencePair, read_pairs
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.experiments.studies.preparing.recordings import (
    Kept,
    Recording,
    fold_text,
    said_in,
    sample_position,
    tidy,
    write_recordings,
)
from latentheads.files import atomic_write, lock_folder
from latentheads.packages import import_optional

SENTENCES = 6000
"""Captions of training that are spoken: six hours."""

TEST = "test_2016_flickr"

ESPEAK = "espeak-ng"

SPEECH = ".speech-"
"""Between the name of a corpus and a digest: where what is spoken lies until it is whole."""


@dataclass(frozen=True)
class Voice:
    """A voice of espeak-ng.

    Attributes:
        name: What espeak-ng calls it: an accent and a variant.
        speed: Words a minute.
        pitch: From 0 to 99.
    """

    name: str
    speed: int
    pitch: int


VOICES = (
    Voice("en-us+m3", 160, 40),
    Voice("en-us+f2", 170, 55),
    Voice("en-gb+m7", 150, 35),
    Voice("en-gb+f4", 165, 60),
    Voice("en-gb-scotland+m1", 155, 45),
    Voice("en-gb-scotland+f3", 175, 50),
)

DOMAINS = ("quiet", "noise")

NOISE = 0.2
"""Standard deviation of the noise, in those of the speech: it has 14 decibels less."""

MADE = (*map(astuple, VOICES), *DOMAINS, NOISE)
"""Everything that the samples depend on, beside the captions and espeak-ng."""

ORIGIN = Origin(
    "spoken-multi30k",
    "the English and German captions of Multi30k, train, val and test_2016_flickr",
    "6aa8125311e70db3e3f6bf8918756acdcd52470ed2edcdd2f740652b9fe00493",
    "Captions of Multi30k (Elliott et al. 2016, https://aclanthology.org/W16-3210), English and "
    "German, from https://github.com/multi30k/dataset; spoken by espeak-ng, "
    "https://github.com/espeak-ng/espeak-ng.\n"
    "Licence: the captions state none, take them as for research alone; espeak-ng is GPL-3, which "
    "says nothing about what it speaks.\n",
    urls=tuple(
        f"https://raw.githubusercontent.com/multi30k/dataset/HEAD/data/task1/raw/{part}.{language}.gz"
        for part in ("train", "val", TEST)
        for language in ("en", "de")
    ),
)


@dataclass(frozen=True)
class _Caption:
    """A caption before it is spoken."""

    name: str
    english: str
    german: str

    @property
    def voice(self) -> Voice:
        """The voice that reads it."""
        return VOICES[sample_position(f"voice of {self.name}", len(VOICES))]

    @property
    def domain(self) -> str:
        """Where it is read."""
        return DOMAINS[sample_position(f"domain of {self.name}", len(DOMAINS))]


def prepare_spoken_multi30k(
    source: Path | None,
    out: Path,
    tell: Log | None = None,
    digest: str = ORIGIN.digest,
    sentences: int = SENTENCES,
) -> Path:
    """Speaks captions and writes tables of them and of their German.

    Of training a caption that shares a text with validation or test is left out; of these nothing.

    Args:
        source: The folder with ``train.en``, ``train.de``, ``val.en`` and so on, .gz accepted; None
            to fetch them.
        out: Where the corpus goes.
        tell: Called with lines about what is done.
        digest: SHA-256 of the captions.
        sentences: How many of the first captions of training are spoken.

    Raises:
        ValueError: These are not the captions, espeak-ng is not there, or the place holds something
            else.
        OSError: espeak-ng fails, another process speaks the same, or nothing can be fetched.
    """
    check_least({"sentences": sentences}, sentences=1)
    origin = replace(ORIGIN, digest=_join_digest(digest, *MADE, sentences))
    counts: list[str] = []
    held = ExitStack()

    def write(folder: Path) -> str:
        given = [source] if source else []
        texts_at = source or _fetch_captions(folder, tell)
        parts = _read_captions(texts_at, given, sentences, digest)
        version = _find_version()
        place = out.with_name(f"{out.name}{SPEECH}{_join_digest(digest, *MADE, version)[:8]}")
        held.enter_context(_locked(place))
        captions = [each for part in reversed(parts.values()) for each in part]  # training last
        if tell is not None:
            tell(f"{version} speaks {len(captions):,} captions in {place}")
        _speak_all(captions, place)
        recordings = {
            part: [_make_recording(each, place) for each in part_captions]
            for part, part_captions in parts.items()
        }
        write_recordings(folder, recordings)
        every = [each for part in recordings.values() for each in part]
        kept = Kept(every, {each.name: read_header(each.audio)[0] for each in every}, {})
        counts.extend(kept.count_each(lambda each: f"{each.speaker}, {each.domain}"))
        return f"{kept.count(recordings)}, made by {version}"

    with held:
        prepare_once(origin, out, write, tell)
    _remove_speech(out)
    for line in counts:
        (tell or str)(line)
    return out


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Keeps the folder of what is spoken for this process."""
    place.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_folder(place)
    except OSError as reason:
        raise OSError(f"cannot speak in {place}: {reason.strerror}") from reason
    try:
        yield
    finally:
        os.close(lock)


def _remove_speech(out: Path) -> None:
    """Removes what was spoken for a corpus that is whole, also by a process that was killed."""
    for place in out.parent.glob(f"{glob.escape(out.name)}{SPEECH}*"):
        with suppress(OSError), _locked(place):  # one that is held is removed by its process
            shutil.rmtree(place)


def _join_digest(*parts: object) -> str:
    """A digest of what makes a corpus what it is."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _fetch_captions(beside: Path, tell: Log | None) -> Path:
    """Fetches the captions, where they can be spoken, and says which folder they are in."""
    _find_version()
    import_optional("soundfile")
    return ORIGIN.fetch(beside, tell)


def _read_captions(
    folder: Path, given: Sequence[Path], sentences: int, digest: str
) -> dict[str, list[_Caption]]:
    """The captions of a folder that are spoken, by part."""
    stems = {"train": None, "valid": None, "test": TEST}
    pairs = {part: read_pairs(folder, part, "en", "de", stem) for part, stem in stems.items()}
    texts = {
        f"{part}.{language}": "\n".join(pair[side] for pair in pairs[part]).encode()
        for part in pairs
        for side, language in enumerate(("en", "de"))
    }
    replace(ORIGIN, digest=digest).check(texts, given)
    held_out = {fold_text(text) for part in ("valid", "test") for p in pairs[part] for text in p}
    pairs["train"] = [p for p in pairs["train"][:sentences] if not held_out & {*map(fold_text, p)}]
    return {part: list(_name_captions(part, each)) for part, each in pairs.items()}


def _name_captions(part: str, pairs: Sequence[SentencePair]) -> Iterator[_Caption]:
    for place, (english, german) in enumerate(pairs):
        yield _Caption(f"{part}-{place:05}", tidy(english), tidy(german))


def _make_recording(caption: _Caption, place: Path) -> Recording:
    texts = {"en": said_in(caption.english), "de": caption.german}
    return Recording(
        caption.name,
        place / f"{caption.name}.ogg",
        "en",
        {language: text for language, text in texts.items() if text},
        caption.voice.name,
        caption.domain,
    )


def _find_version() -> str:
    """Which espeak-ng there is, as "espeak-ng 1.51"."""
    try:
        said = subprocess.run([ESPEAK, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as reason:
        raise ValueError(
            f"there is no {ESPEAK} that speaks the captions: install it, as by apt-get install "
            f"{ESPEAK}"
        ) from reason
    number = said.stdout.partition(":")[2].split()
    return f"{ESPEAK} {number[0] if number else 'of no known version'}"


def _speak_all(captions: Sequence[_Caption], place: Path) -> None:
    """Speaks what is not spoken yet."""
    with tempfile.TemporaryDirectory() as folder:
        for each in tqdm(captions, "speaking", unit="caption", leave=False, disable=None):
            path = place / f"{each.name}.ogg"
            if not path.exists():
                _speak_caption(each, path, Path(folder) / "speech.wav")


def _speak_caption(caption: _Caption, path: Path, wav: Path) -> None:
    """Writes a caption as sound, a fifth as large as espeak-ng does."""
    voice = caption.voice
    words = ["-v", voice.name, "-s", str(voice.speed), "-p", str(voice.pitch), "-w", str(wav)]
    done = subprocess.run(
        [ESPEAK, *words, "--stdin"], input=caption.english.encode(), capture_output=True
    )
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise OSError(f"{ESPEAK} cannot speak {caption.name} as {voice.name}: {said}")
    sound = read_waveform(wav)
    samples = (
        _add_noise(sound.samples, caption.name) if caption.domain == "noise" else sound.samples
    )
    with atomic_write(path) as partial:
        import_optional("soundfile").write(
            partial, samples, sound.sample_rate, "VORBIS", format="OGG"
        )


def _add_noise(samples: Float[np.ndarray, " sample"], name: str) -> NDArray[np.float32]:
    """Speech and white noise, always the same beside the same caption."""
    noise = np.random.default_rng(sample_position(f"noise of {name}", 2**32))
    both = samples + NOISE * samples.std() * noise.standard_normal(len(samples))
    return (both / max(1.0, float(np.abs(both).max(initial=0)))).astype(np.float32)
