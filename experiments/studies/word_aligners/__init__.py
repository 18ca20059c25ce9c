"""Word aligners of other packages, and what links are measured by."""
