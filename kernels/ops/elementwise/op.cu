// The CUDA side of the elementwise operators.

#include "op.h"
