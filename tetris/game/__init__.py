"""The reference implementation: pieces, rules, features, decisions. Begin with `rules.py`."""
