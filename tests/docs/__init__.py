"""The first page and the site: what stands there is true."""
