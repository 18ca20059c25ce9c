"""No page calls one side of a difference better whose interval holds 0, without saying so."""

from __future__ import annotations

import pytest

from tests.docs.claims import claims
from tests.docs.pages import PAGES, REPORTS, Page


@pytest.mark.parametrize("page", [*PAGES, *REPORTS], ids=str)
def test_differences_whose_interval_holds_0_are_said_to_be_not_significant(page: Page) -> None:
    assert claims(page.prose) == []


@pytest.mark.parametrize(
    "text",
    [
        "The head is better by .62 [-.79, 2.02] BLEU.",
        "It loses 1.2 [\N{MINUS SIGN}2.1, 4.6] points.",
        "* One.\n* `group` gains\n  +0.008 ± 0.025 nats.",
        "| `coda` with less noise: **no gain** | .003 [-.010, .016] |",
        "| Does it help? | Yes. | .021 [-.027, .068] nats |",
        "BLEU is higher with the head (1.4 [-1.1, 4.0]). The loss of the other is not significant.",
        "| better | .1 [-.2, .4] |\n| worse, not significantly | .1 [-.2, .4] |",
        "By .5 [-1, 2] n.s., by .4 [.1, .7] to the other.\n\nThe rest is 2 [-1, 5] better.",
    ],
)
def test_a_claim_beyond_its_interval_is_found(text: str) -> None:
    ((statement, intervals),) = claims(text)
    assert len(intervals) == 1
    assert "significant" not in statement


@pytest.mark.parametrize(
    "text",
    [
        "The head is better by .069 [.048, .091] nats.",
        "The head is better by .62 [-.79, 2.02] BLEU, which is not significant.",
        "Nor is it significantly better: .62 [-.79, 2.02].",
        "The interval of the larger one, .62 [-.79, 2.02], holds 0.",
        "| better | .62 [-.79, 2.02] n.s. |",
        "| `chain` less plain | -0.3 [-2.9, 2.3] | .118 [.092, .145] |",
        "Higher is better. The difference is .62 [-.79, 2.02].",
        "A weight in [-1, 1] is better; so are seeds [0, 1].",
        "Own heads are better: -0.418 ± 0.094 against -0.550 ± 0.029.",
    ],
)
def test_what_an_interval_bears_out_is_no_such_claim(text: str) -> None:
    assert claims(text) == []
