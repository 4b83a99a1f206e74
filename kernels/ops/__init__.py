"""The operators: a folder each, with schema and kernels in C++ and CUDA, and what they share beside them."""
