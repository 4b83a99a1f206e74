"""What all packages share and is no kernel: files, names, checks of arguments, interrupts, ranks.

A module each, and none knows another room. Begin with `files.py`.
"""
