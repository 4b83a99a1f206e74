// The CUDA library of one operator. Its folder is on the include path, and has the headers
// below.

#include "gpu.cuh"
#include "launch.cuh"
#include "op.h"
