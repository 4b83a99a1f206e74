"""The reference implementation: rules, pieces, features, decisions. It reads like the rules.

Begin with `rules.py`.
"""
