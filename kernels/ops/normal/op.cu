// The CUDA side of the sampler.

#include "op.h"
