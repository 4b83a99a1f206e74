// The operators on CUDA.

#include "op.h"
