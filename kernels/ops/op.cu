// The CUDA side of the operator whose folder is searched for headers.

#include "launch.cuh"
#include "op.h"
