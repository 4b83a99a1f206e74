// The CUDA side of the operators.

#include "op.h"
