"""The report page of finished runs: one HTML file that works offline.

``report(runs)`` makes the page. Each module gathers one kind of content; ``browser/`` has the
scripts and styles.
"""

from latentheads.contrib.page.assembly import ReportPage, report

__all__ = ["ReportPage", "report"]
