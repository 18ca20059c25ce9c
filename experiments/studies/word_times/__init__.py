"""Word times from attention heads: spoken sentences and digits whose times are known."""
