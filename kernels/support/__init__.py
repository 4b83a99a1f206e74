"""What all packages share and is no kernel: files, names, checks of arguments, interrupts, ranks."""
