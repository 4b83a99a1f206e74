"""What all packages share and is no kernel.

Files, names, checks of arguments, interrupts and ranks have a module each, which imports no
other package of this project. Begin with `files.py`.
"""
