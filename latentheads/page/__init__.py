"""The report page of finished runs: one file of HTML that a browser opens without a network.

``report(runs)`` gathers what there is to show and puts it in a page. A module gathers one thing;
``browser/`` holds what a browser runs.
"""

from latentheads.page.assembly import ReportPage, report

__all__ = ["ReportPage", "report"]
