// The CUDA side of the operator whose folder is searched for headers.

#include "gpu.cuh"
#include "launch.cuh"
#include "op.h"
