"""The reference implementation, which reads like the rules: pieces, features, decisions. Begin with `rules.py`."""
